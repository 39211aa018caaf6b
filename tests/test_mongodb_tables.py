"""Tables in MongoDB: what is in the collections, commits that were cut off, and failures.

The server is mongo-java-server, which speaks the protocol and is no MongoDB."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import App
from millpond.changes import Changes, Position
from millpond.connectors.mongodb import commit_application, commits
from millpond.connectors.mongodb import database as database_module
from millpond.connectors.mongodb.names import collection_name, field_name, name_of
from millpond.connectors.mongodb.newest import NewestCommit
from millpond.connectors.mongodb.trouble import explained, place_of
from millpond.connectors.mongodb.values import decoded, encoded, rests
from millpond.errors import (
    AccessRefused,
    ConnectionLost,
    Error,
    InvalidOption,
    InvalidRecord,
    NotSupported,
    SourceError,
    TypeMismatch,
)
from millpond.records import to_rows
from millpond.tables import Backend, find_backend
from millpond.testing.faults import Injected, at, failing
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema
from tests.servers import MongoJavaServer, Servers, free_port

ITEMS = Schema((Column("id", pa.int64()), Column("v", pa.string())), ("id",))
LOG = Schema((Column("v", pa.string()),))


@pytest.fixture
def server(servers: Servers) -> MongoJavaServer:
    return servers.mongodb


@pytest.fixture
def database(server: MongoJavaServer, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"d{abs(hash(request.node.nodeid)) % 10**9}"
    yield name
    server.client().drop_database(name)


def opened(url: str, schema: Schema = ITEMS, name: str = "t", **more: Any) -> Backend:
    options = {"url": url, "retry.timeout": 5.0, "connect.timeout": 5.0, **more}
    return find_backend("mongodb").open(name, schema, options)


def put(*pairs: tuple[int, str]) -> Changes:
    return Changes(pa.table({"id": [i for i, _ in pairs], "v": [v for _, v in pairs]}))


def found(table: Backend) -> list[tuple[int, str]]:
    return sorted((r["id"], r["v"]) for r in to_rows(table.scan()))


# documents


def test_documents_are_those_that_people_expect(server: MongoJavaServer, database: str) -> None:
    from bson import Decimal128, Int64

    with App() as app:
        app.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, `a.b` BIGINT, `$d` DECIMAL(10,2), day DATE, at TIMESTAMP,"
            " m MAP<STRING, INT>, n MAP<INT, STRING>, s STRUCT<x: INT, `y.z`: ARRAY<TIMESTAMP_NTZ>>, b BINARY,"
            f" wide DECIMAL(38,3)) WITH ('extension' = 'mongodb', 'url' = '{server.url(database)}', 'table' = 'c')"
        )
        app.sql(
            "INSERT INTO t VALUES (7, 8, 1.5, DATE '2024-05-06', TIMESTAMP '2024-05-06 12:00:00.000123',"
            " map('a.b', 1, '$', 2, '', NULL), map(1, 'x'), named_struct('x', 1, 'y.z',"
            " array(TIMESTAMP_NTZ '1969-12-31 23:59:59.999999', NULL)), X'00FF',"
            " 12345678901234567890123456789012345.678)"
        )
        app.sql("INSERT INTO t (id, at) VALUES (8, TIMESTAMP '1900-01-01 00:00:00')")
        collection = server.client()[database]["c"]
        first = collection.find_one({"_id": 7})
        assert first == {
            "_id": 7,
            "a%2Eb": 8,
            "%24d": Decimal128("1.50"),
            "day": datetime(2024, 5, 6),
            "at": datetime(2024, 5, 6, 12),
            "at%us": 123,
            "m": {"a%2Eb": 1, "%24": 2, "%": None},
            "n": [[1, "x"]],
            "s": {"x": 1, "y%2Ez": [{"ms": datetime(1969, 12, 31, 23, 59, 59, 999000), "us": 999}, None]},
            "b": b"\x00\xff",
            "wide": "12345678901234567890123456789012345.678",
        }
        assert type(first["a%2Eb"]) is Int64 and type(first["_id"]) is Int64
        second = collection.find_one({"_id": 8})
        assert "at%us" not in second and second["day"] is None and "day" in second
        row = app.sql("SELECT * FROM t WHERE id = 7").rows()[0]
        assert row["at"] == datetime(2024, 5, 6, 12, 0, 0, 123, tzinfo=UTC) and row["day"] == date(2024, 5, 6)
        assert row["m"] == {"a.b": 1, "$": 2, "": None} and row["n"] == {1: "x"}
        assert row["s"]["y.z"] == [datetime(1969, 12, 31, 23, 59, 59, 999999), None]
        assert row["wide"] == Decimal("12345678901234567890123456789012345.678")
        # A condition with microseconds, which the field itself does not have.
        for where, ids in (
            ("at > TIMESTAMP '2024-05-06 12:00:00.000122'", [7]),
            ("at > TIMESTAMP '2024-05-06 12:00:00.000123'", []),
            ("at = TIMESTAMP '2024-05-06 12:00:00.000123'", [7]),
            ("at = TIMESTAMP '2024-05-06 12:00:00'", []),
            ("at <> TIMESTAMP '2024-05-06 12:00:00'", [7, 8]),
            ("at < TIMESTAMP '2024-05-06 12:00:00.000124'", [7, 8]),
            ("`$d` = 1.5", [7]),
            ("`$d` IS NULL", [8]),
            ("wide > 5", [7]),
            ("b = X'00FF'", [7]),
        ):
            got = sorted(r["id"] for r in app.sql(f"SELECT id FROM t WHERE {where}").rows())
            assert got == ids, where


@given(st.text(max_size=8))
def test_names_of_fields_are_read_back(name: str) -> None:
    field = field_name(name)
    assert name_of(field) == name
    assert field and "." not in field and "\0" not in field and not field.startswith("$") and field != "_id"


def test_names_of_collections() -> None:
    names = [
        "t",
        "system.x",
        "millpond_state",
        "a$b",
        "%",
        "",
        "x" * 200,
        "x" * 199 + "y",
        "é" * 100,
        "é" * 101,
    ]
    made = [collection_name(name) for name in names]
    assert len(set(made)) == len(made) and all(0 < len(m.encode()) <= 120 and "$" not in m for m in made)
    assert not any(m.startswith(("system.", "millpond_")) for m in made)


SPANS = st.timedeltas(timedelta(days=-100_000_000), timedelta(days=100_000_000))
TYPES = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.decimal128(34, 10), st.decimals(-(10**24) + 1, 10**24 - 1, places=10, allow_nan=False)),
    (pa.decimal128(38, 10), st.decimals(-(10**28) + 1, 10**28 - 1, places=10, allow_nan=False)),
    (pa.date32(), st.dates()),
    (TIMESTAMP_NTZ, st.datetimes()),
    (TIMESTAMP, st.datetimes(timezones=st.just(UTC))),
    (pa.duration("us"), SPANS),
    (
        pa.map_(pa.string(), TIMESTAMP_NTZ),
        st.dictionaries(st.text(), st.datetimes()).map(lambda d: [*d.items()]),
    ),
    (
        pa.map_(pa.date32(), pa.int64()),
        st.dictionaries(st.dates(), st.integers(0, 9)).map(lambda d: [*d.items()]),
    ),
    (
        pa.struct([("a.b", pa.decimal128(38, 2)), ("_id", pa.list_(pa.field("element", pa.duration("us"))))]),
        st.fixed_dictionaries(
            {"a.b": st.decimals(-(10**9), 10**9, places=2), "_id": st.lists(SPANS | st.none())}
        ),
    ),
]


@pytest.mark.parametrize(
    ("dtype", "values"), TYPES, ids=lambda v: str(v) if isinstance(v, pa.DataType) else ""
)
def test_values_of_documents_come_back_as_they_were(
    dtype: pa.DataType, values: st.SearchStrategy[Any]
) -> None:
    from bson import decode, encode
    from bson.codec_options import CodecOptions, DatetimeConversion

    options: Any = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(values | st.none(), max_size=5))
    def check(cells: list[Any]) -> None:
        array = pa.array(cells, dtype)
        more = rests(array) if pa.types.is_timestamp(dtype) else None
        sent = decode(encode({"cells": encoded(array, dtype)}), codec_options=options)["cells"]
        assert decoded(sent, dtype, more).equals(array)

    check()


# commits


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("point", ["documents: stored", "documents: decided", "documents: applied in part"])
def test_a_commit_that_is_cut_off(
    point: str, large: bool, server: MongoJavaServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is decided nothing has happened; after it everything has, for readers at once, and for the documents
    when the next commit begins. Its position is applied once."""
    monkeypatch.setattr(commits, "_SMALL", 1 if large else 1 << 20)
    monkeypatch.setattr(commits, "_PART", 200)
    monkeypatch.setattr(database_module, "_GIVEN_UP", 0.2)
    url = server.url(database)
    table, log = opened(url), opened(url, LOG, "log")
    table.apply(put((1, "a"), (2, "b")))
    position = Position("p", "", 7, {"s": {"seq": 3}})

    def work(writing: Any) -> bool:
        if not writing.advance(position):
            return False
        gone = Changes(pa.table({"id": [1, 2, 3], "v": ["", "B", "c"]}), pa.array([True, False, False]))
        writing.apply(table, table.check(gone))
        writing.apply(log, log.check(Changes(pa.table({"v": ["x", "y"]}))))
        writing.apply(log, log.check(Changes(pa.table({"v": ["z"]}))))
        return True

    with failing(point), pytest.raises((Injected, Error)):
        table.database.write(work)
    other = opened(url + "?retryReads=true")  # as another process
    happened = point != "documents: stored"
    expected = [(2, "B"), (3, "c")] if happened else [(1, "a"), (2, "b")]
    for each in (table, other):
        assert found(each) == expected and len(each) == 2
        assert each.get(["id"], pa.table({"id": [1, 3]})).num_rows == 1
        assert each.get(["v"], pa.table({"v": ["B", "a"]})).num_rows == 1
        assert each.position("p") == (position if happened else None)
    assert table.database.write(work) is not happened
    assert found(other) == [(2, "B"), (3, "c")] and other.position("p") == position
    assert [(r["_row"], r["v"]) for r in to_rows(log.scan(rows=True))] == [(0, "x"), (1, "y"), (2, "z")]
    documents = server.client()[database]
    assert sorted(d["_id"] for d in documents["t"].find()) == [2, 3]
    assert documents["millpond_state"].find_one()["applied"] is True
    for each in (table, log, other):
        each.close()


def test_a_commit_of_a_killed_process_is_finished_at_once(server: MongoJavaServer, database: str) -> None:
    code = (
        "import os, signal, sys; from tests.test_mongodb_tables import *\n"
        "from millpond import faults\n"
        "table = opened(sys.argv[1]); table.apply(put((1, 'a'), (2, 'b')))\n"
        "def kill(point):\n"
        "    if point == 'documents: decided': os.kill(os.getpid(), signal.SIGKILL)\n"
        "faults.on_reach(kill)\n"
        "table.apply(put((2, 'c'), (3, 'd')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, server.url(database)], timeout=120)
    assert done.returncode == -9
    assert [d["v"] for d in server.client()[database]["t"].find()] == ["a", "b"]
    table = opened(server.url(database))
    assert found(table) == [(1, "a"), (2, "c"), (3, "d")]
    assert [d["v"] for d in server.client()[database]["t"].find()] == ["a", "c", "d"]
    table.close()


def test_owners_that_are_gone_are_known() -> None:
    mine = commits.owner_of("me")
    assert not commits.is_gone(mine)
    commits.ended("me")
    assert commits.is_gone(mine)
    assert commits.is_gone({**mine, "pid": 2**22 + 1})
    assert commits.is_gone({**mine, "pid": os.getppid(), "began": "0"})
    assert not commits.is_gone({**mine, "host": "another"})
    parent = {**mine, "pid": os.getppid(), "began": commits._began(os.getppid())}
    assert not commits.is_gone(parent)
    # A container has its own count of processes: what has that number here is another one.
    assert str(os.stat("/proc/self/ns/pid").st_ino) in mine["host"].split()


def test_an_owner_that_cannot_be_looked_at_may_be_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = {**commits.owner_of("me"), "pid": os.getppid()}
    commits.ended("me")
    monkeypatch.setattr(commits, "_began", lambda _: "there")
    assert not commits.is_gone(parent)


def test_two_apps_write_at_the_same_time(server: MongoJavaServer, database: str) -> None:
    log = [opened(server.url(database) + more, LOG, "log") for more in ("", "?retryReads=true")]
    wrong: list[BaseException] = []

    def write(me: int) -> None:
        try:
            for number in range(15):
                log[me].apply(
                    Changes(pa.table({"v": [f"{me} {number}"] * 3})), Position(f"p{me}", "", number)
                )
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    rows = to_rows(log[0].scan(rows=True))
    assert sorted(r["_row"] for r in rows) == list(range(90))
    assert sorted(r["v"] for r in rows) == sorted(
        f"{me} {n}" for me in range(2) for n in range(15) for _ in range(3)
    )
    for each in log:
        each.close()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("point", "lost"),
    [
        ("documents: decided", False),
        ("documents: applied in part", True),
        ("documents: applied in part", False),
    ],
)
def test_an_app_that_lost_its_commit_does_not_undo_the_next_one(
    point: str,
    lost: bool,
    large: bool,
    server: MongoJavaServer,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is cut off, between two requests or in one, and another app applies its commit and makes a second one."""
    monkeypatch.setattr(commits, "_SMALL", 1 if large else 1 << 20)
    monkeypatch.setattr(database_module, "_GIVEN_UP", 0.2)
    monkeypatch.setattr(commit_application, "_BEAT", 0.0)
    monkeypatch.setattr(commit_application, "_REQUESTS", 1)
    monkeypatch.setattr(commit_application.Claim, "_beat", lambda _: None)
    table, other = opened(server.url(database)), opened(server.url(database) + "?retryReads=true")
    table.apply(put((1, "a"), (2, "b"), (3, "c")))

    def overtake() -> None:
        other.apply(put((1, "a2"), (2, "b2"), (4, "d2")))
        if lost:
            raise ConnectionLost("gone for a while")

    with at(point, overtake):
        table.apply(
            Changes(
                pa.table({"id": [1, 2, 3, 4], "v": ["", "b1", "c1", "d1"]}),
                pa.array([True, False, False, False]),
            )
        )
    expected = [(1, "a2"), (2, "b2"), (3, "c1"), (4, "d2")]
    assert found(table) == found(other) == expected
    documents = server.client()[database]
    assert sorted((d["_id"], d["v"]) for d in documents["t"].find()) == expected
    assert documents["millpond_state"].find_one()["applied"] is True
    table.apply(put((5, "e")))
    assert found(other) == [*expected, (5, "e")]
    for each in (table, other):
        each.close()


def test_an_app_that_is_at_work_keeps_its_commit(
    server: MongoJavaServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request takes long: others wait, because they see that the app is there."""
    monkeypatch.setattr(database_module, "_GIVEN_UP", 0.5)
    monkeypatch.setattr(commit_application, "_BEAT", 0.02)
    table, other = opened(server.url(database)), opened(server.url(database) + "?retryReads=true")
    second = threading.Thread(target=lambda: other.apply(put((1, "b"))))
    owners = []

    def wait() -> None:
        second.start()
        second.join(1.2)
        owners.append(server.client()[database]["millpond_state"].find_one()["owner"]["object"])
        owners.append(table.database._me)

    with at("documents: applied in part", wait):
        table.apply(put((1, "a")))
    second.join(30)
    assert owners[0] == owners[1] and found(table) == [(1, "b")]
    for each in (table, other):
        each.close()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("arrives", ["at once", "before it is asked for", "after it was given up", "twice"])
def test_a_commit_whose_answer_is_lost_is_made_once(
    arrives: str, large: bool, server: MongoJavaServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pymongo.collection import Collection
    from pymongo.errors import AutoReconnect

    monkeypatch.setattr(commits, "_SMALL", 1 if large else 1 << 20)
    log = opened(server.url(database), LOG, "log")
    real = Collection.update_one
    late: list[tuple[Any, ...]] = []
    lost = []

    def update_one(self: Any, asked: Any, what: Any) -> Any:
        if self.name != "millpond_state":
            return real(self, asked, what)
        decides, fences = "token" in what.get("$set", {}), asked.get("applied") is True and "$inc" in what
        if decides and not lost:
            lost.append(what)
            if arrives in ("at once", "twice"):
                real(self, asked, what)
            if arrives != "at once":
                late.append((self, asked, what))
            raise AutoReconnect("connection closed")
        if late and (decides or (fences and arrives == "before it is asked for")):
            real(*late.pop())
        return real(self, asked, what)

    monkeypatch.setattr(Collection, "update_one", update_one)
    log.apply(Changes(pa.table({"v": ["x", "y"]})))
    log.apply(Changes(pa.table({"v": ["z"]})))
    assert lost and not late
    assert [(r["_row"], r["v"]) for r in to_rows(log.scan(rows=True))] == [(0, "x"), (1, "y"), (2, "z")]
    log.close()


def test_an_attempt_that_was_made_is_not_repeated(
    server: MongoJavaServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server did not say for a while whether the commit was made; when it does, it was."""
    log = opened(server.url(database), LOG, "log")
    real, calls = NewestCommit.decide, []

    def decide(self: NewestCommit, *given: Any) -> bool:
        done = real(self, *given)
        calls.append(done)
        if len(calls) == 1:
            raise ConnectionLost("gone for a while")
        return done

    monkeypatch.setattr(NewestCommit, "decide", decide)
    log.apply(Changes(pa.table({"v": ["x"]})))
    assert calls == [True] and [r["v"] for r in to_rows(log.scan())] == ["x"]
    log.close()


def test_a_lookup_sees_the_commit_of_an_app_that_has_ended(server: MongoJavaServer, database: str) -> None:
    table, other = opened(server.url(database)), opened(server.url(database) + "?retryReads=true")
    table.apply(put((1, "a"), (2, "b")))
    with failing("documents: decided"), pytest.raises(Injected):
        table.apply(put((2, "c"), (3, "d")))
    assert [other.database.one("t", n)["v"] for n in (1, 2, 3)] == ["a", "c", "d"]
    assert [d["v"] for d in server.client()[database]["t"].find()] == ["a", "b"]
    for each in (table, other):
        each.close()


def test_changes_that_somebody_removed_are_an_error(
    server: MongoJavaServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_SMALL", 1)
    table = opened(server.url(database))
    with failing("documents: decided"), pytest.raises(Injected):
        table.apply(put((1, "a")))
    server.client()[database]["millpond_commits"].drop()
    with pytest.raises(SourceError, match="millpond_commits are missing"):
        table.apply(put((2, "b")))
    table.close()


def test_what_a_commit_stores_is_small_and_has_no_operators() -> None:
    from bson import decode, encode
    from bson.datetime_ms import DatetimeMS

    made = commits.CommitChanges()
    for number in range(60):
        made.end("t", f"{number} " + "x" * 500_000)
    update = ({"c": {"$exists": False}}, {"$set": {"c": DatetimeMS(-1)}})
    made.of("t").updates.append(update)
    parts, small = made.parts()
    assert not small and all(len(encode(part)) < 16_000_000 for part in parts)
    assert "$" not in {key[0] for part in parts for each in part["changes"] for key in each}
    read = commits.CommitChanges.read([decode(encode(part)) for part in parts])
    assert read.collections["t"].documents == made.collections["t"].documents
    assert read.collections["t"].updates == [update]


# what goes wrong


def test_reads_are_of_the_first_server_whatever_the_url_says(server: MongoJavaServer, database: str) -> None:
    words = "readPreference=secondary&readConcernLevel=local&retryWrites=true"
    table = opened(f"{server.url(database)}?{words}")
    collection = table.database.collection("t")
    assert collection.read_preference.mode == 0 and collection.read_concern.level == "majority"
    assert collection.database.client.options.retry_writes is False
    table.close()
    with pytest.raises(InvalidOption, match="w=0"):
        opened(f"{server.url(database)}?w=0&journal=false")


def test_failures_are_told_apart_and_show_no_password(server: MongoJavaServer, database: str) -> None:
    quick = {"retry.timeout": 0.0, "connect.timeout": 0.3}
    with pytest.raises(ConnectionLost) as lost:
        opened(f"mongodb://me:hunter2@127.0.0.1:{free_port()}/x", **quick)
    assert len(str(lost.value)) < 300 and lost.value.hint
    for url in (
        "mongodb://me:hun/ter2@localhost:1/x",
        "mongodb://me:hunter2@localhost/x?authMechanism=hunter2",
        "mongodb://me:hunter2@localhost/x?tls=true&tlsCAFile=/hunter2",
    ):
        with pytest.raises(Error) as wrong:
            opened(url, **quick)
        assert "hunter2" not in str(wrong.value) and "ter2" not in wrong.value.message
    with pytest.raises(InvalidOption, match="names no database"):
        opened(f"mongodb://127.0.0.1:{server.port}")
    with pytest.raises(Error) as refused:
        opened(server.url(database, "me:hunter2"), **quick)
    assert "hunter2" not in str(refused.value)
    collection = server.client()[database]["others"]
    collection.insert_one({"_id": 1})
    with pytest.raises(TypeMismatch, match=r'"others" .* belongs to others'):
        opened(server.url(database), table="others")
    for name in ("a$b", "system.x", "millpond_state", "x" * 130):
        with pytest.raises(InvalidOption):
            opened(server.url(database), table=name)
    with App() as app:
        options = f"WITH ('extension' = 'mongodb', 'url' = '{server.url(database)}')"
        app.sql(f"CREATE TABLE t (id INT PRIMARY KEY) {options}")
        with pytest.raises(TypeMismatch, match="another table"):
            app.sql(f"CREATE TABLE u (id STRING PRIMARY KEY) {options[:-1]}, 'table' = 't')")


def test_errors_of_the_driver() -> None:
    from pymongo import errors

    for error, kind in (
        (errors.OperationFailure("Authentication failed.", 18), AccessRefused),
        (errors.OperationFailure("not authorized on x to execute command", 13), AccessRefused),
        (errors.NotPrimaryError("not primary"), ConnectionLost),
        (errors.OperationFailure("the server is in shutdown", 91), ConnectionLost),
        (errors.NetworkTimeout("timed out"), ConnectionLost),
        (errors.OperationFailure("unknown operator", 2), SourceError),
    ):
        assert type(explained(error, "it")) is kind


def test_the_place_of_a_url_has_no_login() -> None:
    assert place_of("mongodb://u:p%40@Host,b:27018/shop?w=1") == "mongodb://b:27018,host:27017/shop"
    assert place_of("mongodb+srv://u:p@cluster.example/shop") == "mongodb+srv://cluster.example/shop"


def test_a_row_that_is_too_large_is_refused(server: MongoJavaServer, database: str) -> None:
    table = opened(server.url(database))
    with pytest.raises(InvalidRecord, match="more than 15 MB") as caught:
        table.apply(put((1, "a"), (2, "x" * (16 << 20))))
    assert caught.value.row == 1 and len(table) == 0
    table.close()
    # A name is stored once here, and in each element there.
    name = "x" * 200
    nested = pa.list_(pa.field("element", pa.struct([pa.field(name, pa.bool_())])))
    table = opened(
        server.url(database), Schema((Column("id", pa.int64()), Column("v", nested)), ("id",)), "n"
    )
    rows = pa.table({"id": [1, 2], "v": pa.array([[], [{name: True}] * 80_000], nested)})
    with pytest.raises(InvalidRecord, match="more than 15 MB") as caught:
        table.apply(Changes(rows))
    assert rows.nbytes < 1 << 20 and caught.value.row == 1
    table.close()


def test_what_a_server_refuses_later_is_applied_when_it_can_be(
    server: MongoJavaServer, database: str
) -> None:
    table = opened(server.url(database))
    collection = server.client()[database]["t"]
    collection.create_index("v", unique=True, name="theirs")
    table.apply(put((1, "a")))
    with pytest.raises(SourceError) as caught:
        table.apply(put((2, "a"), (3, "c")))
    assert "the commit is stored" in (caught.value.hint or "")
    assert found(table) == [(1, "a"), (2, "a"), (3, "c")]
    with pytest.raises(SourceError):
        table.apply(put((4, "d")))
    collection.drop_index("theirs")
    table.apply(put((5, "e")))
    assert found(table) == [(1, "a"), (2, "a"), (3, "c"), (5, "e")]
    assert collection.count_documents({}) == 4
    table.close()


def test_columns_that_would_be_stored_otherwise_keep_their_type(
    server: MongoJavaServer, database: str
) -> None:
    with App() as app:
        app.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL(30,2), w DECIMAL(38,2), at TIMESTAMP) WITH"
            f" ('extension' = 'mongodb', 'url' = '{server.url(database)}')"
        )
        app.sql("INSERT INTO t VALUES (1, 1.5, 2.5, TIMESTAMP '2024-01-01 00:00:00.000001')")
        with pytest.raises(NotSupported, match="stored otherwise"):
            app.sql("ALTER TABLE t ALTER COLUMN d TYPE DECIMAL(36,2)")
        app.sql("ALTER TABLE t ALTER COLUMN d TYPE DECIMAL(34,4)")
        app.sql("ALTER TABLE t RENAME COLUMN at TO `when.at`")
        app.sql("ALTER TABLE t ADD COLUMN more TIMESTAMP DEFAULT TIMESTAMP '2024-01-01 00:00:00.000007'")
        row = app.sql("SELECT * FROM t").rows()[0]
        assert (
            row["d"] == Decimal("1.5000") and row["when.at"].microsecond == 1 and row["more"].microsecond == 7
        )
        document = server.client()[database]["t"].find_one()
        assert set(document) == {"_id", "d", "w", "when%2Eat", "when%2Eat%us", "more", "more%us"}


def test_indexes_are_made_for_lookups_and_by_statements(server: MongoJavaServer, database: str) -> None:
    with App() as app:
        app.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, a INT, `b.c` STRING) WITH"
            f" ('extension' = 'mongodb', 'url' = '{server.url(database)}')"
        )
        app.sql("INSERT INTO t VALUES (1, 2, 'x'); CREATE INDEX i ON t (a, `b.c`)")
        collection = server.client()[database]["t"]

        def indexed() -> list[list[str]]:
            every = collection.index_information().values()
            return sorted([field for field, _ in each["key"]] for each in every)

        assert indexed() == [["_id"], ["a", "b%2Ec"]]
        app.table("t").find_rows_for_join("a", [2])
        assert indexed() == [["_id"], ["a"], ["a", "b%2Ec"]]
        app.sql("DROP INDEX i")
        assert indexed() == [["_id"], ["a"]]
        app.sql("DROP TABLE t")
        assert "t" not in server.client()[database].list_collection_names()
