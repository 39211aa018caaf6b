"""Where tables in Delta have their rows: each finds its own Delta table again, or says that it is not there, and files
of others stay.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from millpond import App
from millpond.connectors.delta import places
from millpond.errors import AlreadyExists, InvalidOption, NotSupported, StateForeign
from millpond.testing.crash import crash
from millpond.testing.faults import failing
from tests.servers import Servers
from tests.test_delta_tables import ID, LATE, NAME, base, flush, keyed, made, rows

BOTH = [True, False, None]


def test_keys_of_a_live_aggregate_may_be_null_and_boolean(tmp_path: Path) -> None:
    """A merge must compare each part of the key alone."""
    at, numbers = tmp_path / "flags", tmp_path / "numbers"
    text = f"""
    CREATE STREAM s (a BOOLEAN, b BOOLEAN, k INT, v INT);
    CREATE TABLE flags WITH ('extension' = 'delta', 'path' = '{at}', {LATE}) AS
        SELECT a, b, SUM(v) AS v FROM s GROUP BY a, b;
    CREATE TABLE numbers WITH ('extension' = 'delta', 'path' = '{numbers}', {LATE}) AS
        SELECT k, a, SUM(v) AS v FROM s GROUP BY k, a;
    """
    with App(text) as app:
        every = [{"a": a, "b": b, "k": k, "v": 1} for a in BOTH for b in BOTH for k in (1, 2, None)]
        app.send("s", every)
        app.drain()
        flush(app, "flags", "numbers")
        app.send("s", [{"a": True, "b": False, "k": 1, "v": 10}, {"a": None, "b": True, "k": None, "v": 20}])
        app.drain()
        flush(app, "flags", "numbers")
    more = {(True, False): 10, (None, True): 20}
    assert base(at) == sorted([(a, b, 3 + more.get((a, b), 0)) for a in BOTH for b in BOTH], key=repr)
    some = {(1, True): 10, (None, None): 20}
    expected = [(k, a, 3 + some.get((k, a), 0)) for a in BOTH for k in (1, 2, None)]
    assert base(numbers) == sorted(expected, key=repr)


@pytest.mark.parametrize("name", ["", ".", "..", "/etc/x", "../x", "a/b", r"a\\b"])
def test_the_name_of_a_folder_is_no_path(tmp_path: Path, name: str) -> None:
    with (
        App(state=tmp_path / "state") as app,
        pytest.raises(InvalidOption, match="option 'table' is the name"),
    ):
        app.sql(f"CREATE TABLE t (id INT) WITH ('extension' = 'delta', 'table' = '{name}')")


def test_a_path_and_the_name_of_a_folder_are_refused_together(tmp_path: Path) -> None:
    with App(state=tmp_path / "state") as app:
        with pytest.raises(InvalidOption, match="has the options 'path' and 'table'"):
            app.sql(keyed(tmp_path / "lake", ", 'table' = 'orders'"))
        assert not (tmp_path / "lake").exists() and not (tmp_path / "state" / "delta").exists()
        app.sql(keyed(tmp_path / "lake"))


def test_drop_removes_only_the_folder_of_the_table(tmp_path: Path) -> None:
    """A table in back-ticks may have any name, and a folder that was there before is not removed."""
    state, foreign = tmp_path / "state", tmp_path / "state" / "delta" / "mine"
    with App(state=state) as app:
        made(foreign, id=ID)
        before = sorted(p.name for p in state.iterdir())
        names = ["..", "../..", "a/b", "Ä ö%", "x" * 200, str(tmp_path)]
        for name in names:
            app.sql(f"CREATE TABLE `{name}` (id INT PRIMARY KEY) WITH ('extension' = 'delta')")
            app.sql(f"INSERT INTO `{name}` VALUES (1)")
            flush(app, name)
        assert len(list((state / "delta").iterdir())) == len(names) + 1
        app.sql("ALTER TABLE `a/b` RENAME TO `c/d`")
    with App(state=state) as app:
        for name in [*names[:2], "c/d", *names[3:]]:
            assert rows(app, f"`{name}`") == [(1,)]
            app.sql(f"DROP TABLE `{name}`")
        app.sql("CREATE TABLE t (id INT PRIMARY KEY) WITH ('extension' = 'delta', 'table' = 'mine')")
        app.sql("DROP TABLE t")
        assert sorted(p.name for p in state.iterdir()) == before
    assert base(foreign) == [(1,), (2,)] and list((state / "delta").iterdir()) == [foreign]


def test_a_state_directory_with_a_percent_sign(tmp_path: Path) -> None:
    with App(state=tmp_path / "a%20b") as app, pytest.raises(InvalidOption, match='no "%" in its name'):
        app.sql("CREATE TABLE t (id INT) WITH ('extension' = 'delta')")


def copied_away(at: Path) -> None:
    shutil.rmtree(at)


def made_anew(at: Path) -> None:
    shutil.rmtree(at)
    made(at, id=ID, name=NAME)


@pytest.mark.parametrize(
    ("change", "said"), [(copied_away, "is gone"), (made_anew, "not the one that had the rows")]
)
def test_a_delta_table_that_is_gone_is_not_created_again(
    tmp_path: Path, change: Callable[[Path], None], said: str
) -> None:
    at, state = tmp_path / "lake", tmp_path / "state"
    with App(keyed(at), state=state) as app:
        app.sql("INSERT INTO t VALUES (1, 'a')")
    shutil.copytree(at, tmp_path / "away")
    change(at)
    for read_only in (False, True):
        with pytest.raises(StateForeign, match=said):
            App(state=state, _read_only=read_only)
    assert change is made_anew or not at.exists()
    shutil.rmtree(at, ignore_errors=True)
    shutil.copytree(tmp_path / "away", at)
    for read_only in (True, False):
        with App(state=state, _read_only=read_only) as app:
            assert rows(app, "t") == [(1, "a")]


def test_a_delta_table_that_is_older_than_the_state_directory_is_refused(tmp_path: Path) -> None:
    at, state = tmp_path / "lake", tmp_path / "state"
    with App(keyed(at), state=state) as app:
        app.sql("INSERT INTO t VALUES (1, 'a')")
        flush(app, "t")
        shutil.copytree(at, tmp_path / "old")
        app.sql("INSERT INTO t VALUES (2, 'b')")
        app.sql("ALTER TABLE t RENAME TO u")
    shutil.rmtree(at)
    shutil.copytree(tmp_path / "old", at)
    for _ in range(2):
        with pytest.raises(StateForeign, match="older than the directory"):
            App(state=state)


def test_a_relative_path_is_that_of_create_table(tmp_path: Path, monkeypatch: Any) -> None:
    text = keyed("lake/t")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    with App(text, state=tmp_path / "state") as app:
        app.sql("INSERT INTO t VALUES (1, 'a')")
    monkeypatch.chdir(tmp_path / "b")
    for file in (None, text):
        with App(file, state=tmp_path / "state") as app:
            assert rows(app, "t") == [(1, "a")]
            app.sql(
                "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, name STRING) WITH "
                f"('extension' = 'delta', 'path' = 'lake/t', {LATE})"
            )  # the same
            app.sql("INSERT INTO t VALUES (1, 'a')")
    assert not list((tmp_path / "b").iterdir()) and base(tmp_path / "a" / "lake" / "t") == [(1, "a")]


def test_a_folder_has_one_table_however_it_is_spelled(tmp_path: Path) -> None:
    at, link = tmp_path / "real" / "x", tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    with App(keyed(at)) as app:
        for other in (link / "x", f"file://{at}", tmp_path / "real" / "y" / ".." / "x"):
            with pytest.raises(AlreadyExists, match="another table has its rows"):
                app.sql(keyed(other).replace("TABLE t", "TABLE u"))
            with pytest.raises(AlreadyExists, match="nothing else can write there"):
                app.sql(f"INSERT INTO 'delta://{link}/x' SELECT 1 AS id, 'a' AS name")
        app.sql("INSERT INTO t VALUES (1, 'a')")
    assert base(at) == [(1, "a")]
    places.take("s3a://bucket//x/", "t")
    try:
        with pytest.raises(AlreadyExists):
            places.take("s3://bucket/x", "u")
    finally:
        places.leave("S3://bucket/x")


def test_two_tables_that_had_their_rows_in_one_place(tmp_path: Path) -> None:
    """Each has the number of its own commits in the Delta table."""
    at, state = tmp_path / "lake", tmp_path / "state"
    app = App(keyed(at), state=state)
    app.sql("INSERT INTO t VALUES (1, 'a')")
    flush(app, "t")
    app.sql("DROP TABLE t")
    app.sql(keyed(at))
    app.sql("INSERT INTO t VALUES (2, 'b')")
    crash(app)
    with App(state=state) as app:
        assert rows(app, "t") == [(1, "a"), (2, "b")]


def test_a_drop_that_is_killed_while_it_removes_files(tmp_path: Path, monkeypatch: Any) -> None:
    create = "CREATE TABLE own (id INT PRIMARY KEY) WITH ('extension' = 'delta')"
    app, folder = App(create, state=tmp_path / "state"), tmp_path / "state" / "delta" / "own"
    app.sql("INSERT INTO own VALUES (1)")
    flush(app, "own")

    def killed(at: Path, **_: Any) -> None:
        next((Path(at) / "_delta_log").iterdir()).unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        app.sql("DROP TABLE own")
    monkeypatch.undo()
    crash(app)
    assert not folder.exists() and list(folder.parent.iterdir())
    with App(state=tmp_path / "state") as app:
        assert not list(folder.parent.iterdir())
        app.sql(create)
        assert rows(app, "own") == []


def test_a_drop_that_is_killed_creates_nothing_at_a_path(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    app = App(keyed(at), state=tmp_path / "state")
    with failing("drop journalled", KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        app.sql("DROP TABLE t")
    crash(app)
    shutil.rmtree(at)
    with App(state=tmp_path / "state"):
        assert not at.exists()


def test_a_create_that_is_killed_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    app = App(state=tmp_path / "state")
    made_by_a_kill = tmp_path / "state" / "delta" / "t"
    DeltaTable.create(str(made_by_a_kill), pa.schema([("other", pa.int32())]))
    with app:
        app.sql("CREATE TABLE t (id INT PRIMARY KEY) WITH ('extension' = 'delta')")
        app.sql("DROP TABLE t")
        assert not made_by_a_kill.exists()


def test_binary_is_no_partition(tmp_path: Path) -> None:
    at = tmp_path / "lake"
    text = f"CREATE TABLE t (id INT PRIMARY KEY, p BINARY) WITH ('extension' = 'delta', 'path' = '{at}'"
    with App() as app:
        with pytest.raises(NotSupported, match='"p" is BINARY'):
            app.sql(f"{text}, 'partition.by' = 'p')")
        assert not at.exists()
        write_deltalake(str(at), pa.table({"id": ID, "p": pa.array([b"a", b"b"])}), partition_by=["p"])
        for _ in range(2):
            with pytest.raises(NotSupported, match='"p" is BINARY'):
                app.sql(f"{text})")


@pytest.mark.slow
def test_a_table_in_an_object_store(servers: Servers, tmp_path: Path) -> None:
    """Flushes, a crash with changes that are not flushed, lookups, versions and care."""
    s3, name = servers.s3, f"b{uuid.uuid4().hex[:10]}"
    s3.client().create_bucket(Bucket=name)
    storage = {
        "AWS_ENDPOINT_URL": s3.url,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    place, options = f"s3://{name}/lake/t", ", ".join(f"'storage.{k}' = '{v}'" for k, v in storage.items())
    text = f"""CREATE STREAM s (id INT, name STRING); {keyed(place, f", {options}, 'partition.by' = 'name'")};
               INSERT INTO t SELECT id, name FROM s"""

    def there() -> list[tuple[int, str]]:
        found = DeltaTable(place, storage_options=storage).to_pyarrow_table().sort_by("id")
        return list(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))

    app = App(text, state=tmp_path / "state")
    app.send("s", [{"id": 1, "name": "a b%/é"}, {"id": 2, "name": "b"}])
    app.drain()
    flush(app, "t")
    assert there() == [(1, "a b%/é"), (2, "b")]
    app.send("s", [{"id": 2, "name": "c"}, {"id": 3, "name": "c"}])
    app.sql("DELETE FROM t WHERE id = 1")
    app.drain()
    crash(app)
    with App(state=tmp_path / "state") as app:
        assert rows(app, "t") == [(2, "c"), (3, "c")] and len(there()) == 2
        flush(app, "t")
        assert app.table("t").get_record(3) == {"id": 3, "name": "c"}
        first = "SELECT * FROM t VERSION AS OF 1 ORDER BY id"
        assert [tuple(r.values()) for r in app.sql(first).rows()] == [(1, "a b%/é"), (2, "b")]
        app.sql("OPTIMIZE t")
        app.sql("INSERT INTO t VALUES (4, 'd')")
        with pytest.raises(AlreadyExists, match="another table has its rows"):
            app.sql(keyed(f"{place}/", f", {options}").replace("TABLE t", "TABLE u"))
    assert there() == [(2, "c"), (3, "c"), (4, "d")]
