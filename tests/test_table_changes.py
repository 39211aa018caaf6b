"""EMIT CHANGES into sinks: an outside table is kept equal to a table here, across restarts."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond import App, Error
from millpond.errors import InUse, InvalidOption, NotSupported
from millpond.testing.crash import crash
from tests.servers import Servers
from tests.test_kafka import new_topic, uri

TABLE = "CREATE TABLE items (id BIGINT PRIMARY KEY, k STRING, n INT);"


def into(folder: Path, query: str = "SELECT id, k, n FROM items", more: str = "") -> str:
    options = f"'table' = 'items', 'query.name' = 'out'{more}"
    return f"INSERT INTO sql://sqlite:///{folder}/out.db {query} EMIT CHANGES WITH ({options});"


def outside(folder: Path, sql: str = "SELECT id, k, n FROM items") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "out.db")) as connection:
        return sorted(connection.execute(sql).fetchall(), key=repr)


def inside(app: App, sql: str = "SELECT id, k, n FROM items") -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in app.sql(sql).rows()), key=repr)


step = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 9), st.sampled_from("ab"), st.integers(-3, 3)),
    st.tuples(st.just("update"), st.integers(0, 9)),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.sampled_from([("drain",), ("restart",), ("crash",), ("swap",), ("truncate",), ("one",)]),
)


model = given(steps=st.lists(step, min_size=3, max_size=25), where=st.sampled_from(["", " WHERE n > 0"]))
few = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
many = settings(few, max_examples=200)
Execute = Callable[[str], list[tuple[Any, ...]]]


def keep_equal(steps: list[tuple[Any, ...]], where: str, folder: Path, url: str, execute: Execute) -> None:
    """Also by another key than the table's, of which every value is in one row only."""
    query = f"SELECT id, k, n FROM items{where}"
    by_other = "SELECT id, CAST(id AS STRING) || k AS name FROM items"
    text = f"""{TABLE}
        INSERT INTO {url} {query} EMIT CHANGES WITH ('table' = 'items', 'query.name' = 'out');
        INSERT INTO {url} {by_other} EMIT CHANGES WITH ('table' = 'named', 'key' = 'name');"""
    app = App(text, state=folder / "state", _direct=True)
    try:
        for what, *given_ in [*steps, ("drain",)]:
            match what:
                case "put":
                    app.sql(f"INSERT INTO items VALUES ({given_[0]}, '{given_[1]}', {given_[2]})")
                case "update":
                    app.sql(f"UPDATE items SET n = n + 1 WHERE id >= {given_[0]}")
                case "delete":
                    app.sql(f"DELETE FROM items WHERE id = {given_[0]}")
                case "swap":
                    app.sql("UPDATE items SET k = CASE k WHEN 'a' THEN 'b' ELSE 'a' END")
                case "truncate":
                    app.sql("TRUNCATE TABLE items")
                case "one":
                    app.table("items").delete(id=3)
                case "restart":
                    app.close()
                    app = App(text, state=folder / "state", _direct=True)
                case "crash":
                    crash(app)
                    app = App(text, state=folder / "state", _direct=True)
                case "drain":
                    app.drain(60)
        assert sorted(execute("SELECT id, k, n FROM items"), key=repr) == inside(app, query)
        assert sorted(execute("SELECT id, name FROM named"), key=repr) == inside(app, by_other)
    finally:
        app.close()


@few
@model
def test_random_changes_keep_the_tables_equal(
    steps: list[tuple[Any, ...]], where: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("changes")
    keep_equal(steps, where, folder, f"sql://sqlite:///{folder}/out.db", lambda sql: outside(folder, sql))


def in_server(kind: str, servers: Servers) -> tuple[str, Execute]:
    """The URL of a new database, and what reads it."""
    name = f"equal{uuid.uuid4().hex[:8]}"
    if kind == "mysql":
        return servers.mariadb.new_database(name), lambda sql: servers.mariadb.execute(sql, name)
    url = servers.postgresql.new_schema(name)
    return url, lambda sql: servers.postgresql.execute(sql, url)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
@settings(few, max_examples=6)
@model
def test_random_changes_keep_tables_of_servers_equal(
    steps: list[tuple[Any, ...]],
    where: str,
    kind: str,
    servers: Servers,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    keep_equal(steps, where, tmp_path_factory.mktemp("changes"), *in_server(kind, servers))


@pytest.mark.chaos
@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
@many
@model
def test_many_random_changes_keep_tables_of_servers_equal(
    steps: list[tuple[Any, ...]],
    where: str,
    kind: str,
    servers: Servers,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    keep_equal(steps, where, tmp_path_factory.mktemp("changes"), *in_server(kind, servers))


def test_rows_that_were_there_come_first_and_a_restart_goes_on(tmp_path: Path) -> None:
    with App(TABLE, state=tmp_path / "state", _direct=True) as app:
        app.sql("INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 2)")
    with App(TABLE + into(tmp_path), state=tmp_path / "state", _direct=True) as app:
        app.sql("UPDATE items SET n = 5 WHERE id = 1")
        app.drain(60)
        assert outside(tmp_path) == [(1, "a", 5), (2, "b", 2)]
        app.sql("STOP QUERY out")
        for n in range(100):  # more commits than a table remembers
            app.sql(f"UPDATE items SET n = {n} WHERE id = 1")
        app.sql("DELETE FROM items WHERE id = 2")
    with App(TABLE + into(tmp_path), state=tmp_path / "state", _direct=True) as app:
        app.drain(60)
        assert outside(tmp_path) == [(1, "a", 5), (2, "b", 2)]
        app.sql("START QUERY out")
        app.drain(60)
        assert outside(tmp_path) == [(1, "a", 99)]
        plan = "\n".join(
            row["plan"] for row in app.sql(f"EXPLAIN {into(tmp_path)}".replace("'out'", "'new'")).rows()
        )
        assert "changes of table items: its rows as of one commit first" in plan
        assert "exactly once: the rows of a batch and the position are one transaction" in plan
        app.sql("DROP QUERY out")
        assert not list(app._runtime.store.changelogs)
        assert app._runtime.journal.stream_end("out$changes") == 0


def test_delivered_changes_leave_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.store.changelogs._TRIM_ROWS", 1)
    with App(TABLE + into(tmp_path), state=tmp_path / "state", _direct=True) as app:
        for n in range(5):
            app.sql(f"INSERT INTO items VALUES ({n}, 'a', 1)")
            app.drain(60)
        journal = app._runtime.journal
        assert journal.stream_first("out$changes") == 4  # the last batch was being read
        assert journal.stream_end("out$changes") == 5


def test_methods_of_tables_and_transactions_are_followed(tmp_path: Path) -> None:
    text = TABLE + into(tmp_path)
    with App(text, _direct=True) as app:
        items = app.table("items")
        items.insert({"id": 1, "k": "a", "n": 1})
        items.insert({"id": 2, "k": "b", "n": 2})
        items.update(id=1, changes={"n": 7})
        with app.begin_transaction() as tx:
            tx.sql("UPDATE items SET k = 'z' WHERE id = 1")
            tx.sql("DELETE FROM items WHERE id = 2")
        app.drain(60)
        assert outside(tmp_path) == [(1, "z", 7)]


def test_a_row_that_the_sink_refuses_is_put_aside(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
        connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, k TEXT, n INT CHECK (n < 10))")
        connection.commit()
    with App(TABLE + into(tmp_path), state=tmp_path / "state", _direct=True) as app:
        app.sql("INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 20), (3, 'c', 3)")
        app.drain(60)
        assert outside(tmp_path) == [(1, "a", 1), (3, "c", 3)]
        assert len(app.sql("SELECT * FROM `out$errors`").rows()) == 1
        app.sql("UPDATE items SET n = 30 WHERE id = 3")
        app.drain(60)
        app.sql("STOP QUERY out")
        app.sql("UPDATE items SET n = 5 WHERE id = 2")
        app.sql("DELETE FROM items WHERE id = 3")
        assert app.sql("REPLAY `out$errors`").count == 2  # with the rows as they are now
        assert outside(tmp_path) == [(1, "a", 1), (2, "b", 5)]
        app.sql("START QUERY out")
        app.drain(60)
        assert outside(tmp_path) == inside(app)


@pytest.mark.slow
def test_changes_in_mysql_and_clickhouse(servers: Servers, tmp_path: Path) -> None:
    """Both by the table's key; in ClickHouse a deleted row is one with a higher version."""
    maria, house = servers.mariadb.new_database("changes"), servers.clickhouse.new_database("changes")
    text = f"""{TABLE}
        INSERT INTO {maria} SELECT id, k, n FROM items EMIT CHANGES WITH ('table' = 'items');
        INSERT INTO {house} SELECT id, k, n FROM items WHERE n < 9 EMIT CHANGES WITH ('table' = 'items');"""
    for number in range(2):
        with App(text, state=tmp_path / "state", _direct=True) as app:
            app.sql(f"INSERT INTO items VALUES ({10 + number}, 'a', 1), ({20 + number}, 'b', 2)")
            app.drain(60)
            app.sql(f"UPDATE items SET n = n + 1 WHERE id = {10 + number}")
            app.sql(f"DELETE FROM items WHERE id = {20 + number}")
            app.sql(f"UPDATE items SET n = n + 10 WHERE id = {9 + number}")
            app.drain(60)
            plan = app.sql(f"EXPLAIN INSERT INTO {house}/x SELECT * FROM items EMIT CHANGES").rows()[-1][
                "plan"
            ]
            assert "read with FINAL" in plan
    expected = [(10, "a", 12), (11, "a", 2)]
    assert sorted(servers.mariadb.execute("SELECT id, k, n FROM items", "changes")) == expected
    seen = servers.clickhouse.execute("SELECT id, k, n FROM items FINAL ORDER BY id FORMAT CSV", "changes")
    assert seen.splitlines() == ['11,"a",2']


def test_a_commit_is_not_divided(tmp_path: Path) -> None:
    """Batches end between two commits, unless one is larger than a batch."""
    text = TABLE + into(tmp_path)
    with App(text, state=tmp_path / "state", _direct=True) as app:
        for n, count in enumerate((3, 3, 3, 12, 1)):
            rows = ", ".join(f"({100 * n + i}, 'a', {n})" for i in range(count))
            app.sql(f"INSERT INTO items VALUES {rows}")
        source = next(iter(app._runtime.runner)).source
        at, ends = None, []
        while not source.reached(at, end := source.latest(None)):
            at = source.clip(at, end, 5)
            ends.append(at["seq"])
        assert ends == [3, 6, 9, 14, 19, 22]


@pytest.mark.slow
def test_messages_with_keys_tombstones_and_envelopes(servers: Servers, tmp_path: Path) -> None:
    kafka = servers.kafka
    rows, envelopes, named = (new_topic(kafka) for _ in range(3))
    exact = "'delivery' = 'exactly-once'"
    text = f"""
        CREATE TABLE t (a INT, b STRING, n DECIMAL(10,2), PRIMARY KEY (a, b));
        INSERT INTO {uri(kafka, rows)} SELECT n FROM t EMIT CHANGES WITH ({exact});
        INSERT INTO {uri(kafka, envelopes)} SELECT * FROM t WHERE n < 9 EMIT CHANGES
          WITH ({exact}, 'envelope' = 'debezium', 'key.format' = 'avro');
        INSERT INTO {uri(kafka, named)} SELECT b AS _key, n FROM t EMIT CHANGES WITH ({exact});
        CREATE TABLE back (a INT, b STRING, n DECIMAL(10,2), PRIMARY KEY (a, b)) AS
          SELECT a, b, n FROM {uri(kafka, envelopes)} WITH ('format' = 'debezium');
    """
    with App(text, state=tmp_path / "state", _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 'x', 1.5), (2, 'y', 2), (3, 'z', 3)")
        app.drain(60)
        app.sql("UPDATE t SET n = n + 10 WHERE a = 2")
        app.sql("DELETE FROM t WHERE a = 3")
        app.sql("UPDATE t SET n = 7 WHERE a = 1")
        app.drain(60)
        app.drain(60)
        assert inside(app, "SELECT * FROM back") == inside(app, "SELECT * FROM t WHERE n < 9")
    key = {1: b'{"a":1,"b":"x"}', 2: b'{"a":2,"b":"y"}', 3: b'{"a":3,"b":"z"}'}
    assert list(kafka.consume(rows)) == [
        (key[1], b'{"n":1.50}'),
        (key[2], b'{"n":2.00}'),
        (key[3], b'{"n":3.00}'),
        (key[2], b'{"n":12.00}'),
        (key[3], None),
        (key[1], b'{"n":7.00}'),
    ]
    told = [(k, None if v is None else json.loads(v)["op"]) for k, v in kafka.consume(envelopes)]
    key = {n: bytes([2, 2 * n, 2, 2]) + k for n, k in ((1, b"x"), (2, b"y"), (3, b"z"))}  # records of Avro
    deleted = [[(key[n], "d"), (key[n], None)] for n in (2, 3)]
    created = [(key[n], "c") for n in (1, 2, 3)]
    assert told == [*created, *deleted[0], *deleted[1], (key[1], "u")]
    assert [k for k, _ in kafka.consume(named)] == [b"x", b"y", b"z", b"y", b"z", b"x"]


def test_changes_in_delta(tmp_path: Path) -> None:
    text = f"{TABLE} INSERT INTO delta://{tmp_path}/items SELECT id, k FROM items WHERE n > 0 EMIT CHANGES;"
    with App(text, state=tmp_path / "state", _direct=True) as app:
        app.sql("INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
        app.drain(60)
        app.sql("UPDATE items SET k = 'z', n = n - 1 WHERE id < 3")
        app.sql("DELETE FROM items WHERE id = 3")
        app.drain(60)
    assert DeltaTable(tmp_path / "items").to_pyarrow_table().to_pylist() == [{"id": 2, "k": "z"}]


def test_files_have_the_operation(tmp_path: Path) -> None:
    text = f"""{TABLE}
        INSERT INTO file://{tmp_path}/out SELECT id, n FROM items EMIT CHANGES WITH ('format' = 'jsonl');"""
    with App(text, state=tmp_path / "state", _direct=True) as app:
        app.sql("INSERT INTO items VALUES (1, 'a', 1)")
        app.drain(60)
        app.sql("UPDATE items SET n = 2")
        app.sql("UPDATE items SET k = 'unseen'")
        app.drain(60)
    files = sorted(p for p in (tmp_path / "out").rglob("*.jsonl") if ".millpond" not in p.parts)
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert lines == [{"_op": "insert", "id": 1, "n": 1}, {"_op": "update", "id": 1, "n": 2}]


def test_what_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    lost = TABLE.replace(");", ") WITH ('durability' = 'none');")
    with pytest.raises(NotSupported, match="empty after a restart"):
        App(lost + into(tmp_path), state=state, _direct=True)
    stored = TABLE.replace(");", f") WITH ('extension' = 'sqlite', 'path' = '{tmp_path}/t.db');")
    with pytest.raises(NotSupported, match="which is in a database"):
        App(stored + into(tmp_path), _direct=True)
    for more, message in (
        (", 'envelope' = 'debezium'", "a database gets rows"),
        (", 'mode' = 'append'", 'cannot be "append"'),
    ):
        with pytest.raises(InvalidOption, match=message):
            App(TABLE + into(tmp_path, more=more), _direct=True)
    with App(TABLE + into(tmp_path), _direct=True) as app:
        with pytest.raises(Error, match="used by"):
            app.sql("DROP TABLE items")
        with pytest.raises(InUse, match="changelog"):
            app.sql("ALTER TABLE items ADD COLUMN more INT")
    view = "CREATE {} TABLE v AS SELECT id, n FROM items WHERE n > {};"
    out = "CREATE STREAM log AS SELECT * FROM v EMIT CHANGES;"
    with App(TABLE + view.format("", 1) + out, _direct=True) as app, pytest.raises(InUse, match="changelog"):
        app.sql(view.format("OR REPLACE", 2))


def test_explain_of_rows_that_are_written_once(tmp_path: Path) -> None:
    """A statement that is given to the app has no position; one of its file has."""
    with App(TABLE, state=tmp_path / "state", _direct=True) as app:
        sql = f"EXPLAIN INSERT INTO sql://sqlite:///{tmp_path}/o.db SELECT * FROM items WITH ('table' = 't')"
        last = app.sql(sql).rows()[-1]["plan"]
        assert "at least once: " in last and "; as a statement of the app's file exactly once" in last
