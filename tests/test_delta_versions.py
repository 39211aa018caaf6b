"""Earlier versions of Delta tables: queries as of a version or a time, and the list of versions. What deltalake reads
at that version is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from millpond import App
from millpond.errors import Error, InvalidOption, NotSupported, SqlError

LATE = "'flush.interval' = '1h'"


def flush(app: App, *names: str) -> None:
    for name in names:
        app._runtime.compactor.flusher.flush(name)


def as_read(at: Path | str, version: int, *names: str) -> list[tuple[Any, ...]]:
    """What deltalake reads."""
    found = DeltaTable(str(at), version=version).to_pyarrow_table().select(list(names))
    return sorted(tuple(r.values()) for r in found.to_pylist())


def asked(app: App, sql: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in app.sql(sql).rows())


@pytest.fixture
def lake(tmp_path: Path) -> tuple[App, Path]:
    """A table with a key at versions 0 to 3, one without a key, and changes that are not flushed."""
    app = App(
        f"""CREATE TABLE t (id INT PRIMARY KEY, name STRING)
              WITH ('extension' = 'delta', 'path' = '{tmp_path}/t', {LATE});
            CREATE TABLE l (n INT, took INTERVAL DAY TO SECOND)
              WITH ('extension' = 'delta', 'path' = '{tmp_path}/l', {LATE});
            CREATE TABLE m (id INT PRIMARY KEY, name STRING)""",
        state=tmp_path / "state",
    )
    for changes in (
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "UPDATE t SET name = 'c' WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
    ):
        app.sql(changes)
        flush(app, "t")
    app.sql("INSERT INTO l VALUES (1, INTERVAL '1' SECOND), (1, NULL)")
    flush(app, "l")
    app.sql("INSERT INTO l VALUES (2, NULL)")
    flush(app, "l")
    app.sql("INSERT INTO t VALUES (9, 'new')")
    return app, tmp_path


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    at = tmp_path_factory.mktemp("empty")
    with App(
        f"""CREATE TABLE t (id INT PRIMARY KEY) WITH ('extension' = 'delta', 'path' = '{at}/t');
            CREATE TABLE m (id INT PRIMARY KEY); CREATE STREAM s (id INT)"""
    ) as app:
        yield app


def test_a_version_of_a_table(lake: tuple[App, Path]) -> None:
    app, at = lake
    with app:
        for version in range(4):
            assert asked(app, f"SELECT * FROM t VERSION AS OF {version}") == as_read(
                at / "t", version, "id", "name"
            )
        assert asked(app, "SELECT * FROM t") == [(2, "c"), (9, "new")]
        assert asked(app, "SELECT name FROM t VERSION AS OF 1 WHERE id = 2") == [("b",)]
        assert asked(app, "SELECT name FROM t VERSION AS OF 2 WHERE id = 2") == [("c",)]
        assert asked(app, "SELECT name FROM t WHERE id = 2") == [("c",)]
        assert asked(app, "SELECT COUNT(*) FROM t FOR VERSION AS OF 1") == [(2,)]
        assert asked(app, "SELECT n FROM l VERSION AS OF 1") == as_read(at / "l", 1, "n")
        assert asked(app, "SELECT n FROM l VERSION AS OF 1 WHERE took IS NOT NULL") == [(1,)]
        # Versions of one table, joined with one another and with what is there now.
        assert asked(
            app,
            "SELECT o.id, o.name, n.name, t.name FROM t VERSION AS OF 1 AS o"
            " LEFT JOIN t VERSION AS OF 2 AS n ON n.id = o.id LEFT JOIN t ON t.id = o.id",
        ) == [(1, "a", "a", None), (2, "b", "c", "c")]


def test_a_version_by_its_time(lake: tuple[App, Path]) -> None:
    app, at = lake
    with app:
        for commit in DeltaTable(str(at / "t")).history():
            moment = datetime.fromtimestamp(commit["timestamp"] / 1000, UTC)
            there = DeltaTable(str(at / "t"))
            there.load_as_version(moment)
            found = asked(app, f"SELECT * FROM t TIMESTAMP AS OF '{moment.isoformat()}'")
            assert found == as_read(at / "t", there.version(), "id", "name")
        assert asked(app, "SELECT * FROM t TIMESTAMP AS OF '2999-01-01'") == [(2, "c")]
        assert asked(app, "SELECT * FROM t TIMESTAMP AS OF TIMESTAMP '2999-01-01 00:00:00'") == [(2, "c")]
        with pytest.raises(InvalidOption, match="has no version as of 2001-01-01"):
            app.sql("SELECT * FROM t TIMESTAMP AS OF '2001-01-01'")


def test_a_version_in_other_statements(lake: tuple[App, Path]) -> None:
    app, _ = lake
    with app:
        app.sql("INSERT INTO m SELECT * FROM t VERSION AS OF 1")
        assert asked(app, "SELECT * FROM m") == [(1, "a"), (2, "b")]
        app.sql("CREATE VIEW before AS SELECT * FROM t VERSION AS OF 1")
        assert asked(app, "SELECT * FROM before") == [(1, "a"), (2, "b")]
        with app.begin_transaction() as tx:
            tx.sql("DELETE FROM t")
            assert tx.sql("SELECT COUNT(*) AS n FROM t VERSION AS OF 1").rows() == [{"n": 2}]
            assert tx.sql("SELECT COUNT(*) AS n FROM t").rows() == [{"n": 0}]
        app.sql("MERGE INTO t USING t VERSION AS OF 1 AS o ON t.id = o.id WHEN NOT MATCHED THEN INSERT *")
        assert asked(app, "SELECT * FROM t") == [(1, "a"), (2, "b")]
        plan = [r["plan"] for r in app.sql("EXPLAIN SELECT * FROM t VERSION AS OF 1").rows()]
        assert "read table t VERSION AS OF 1 as t" in plan
        for statement in (
            "CREATE TABLE x AS SELECT * FROM t VERSION AS OF 1",
            "CREATE MATERIALIZED VIEW x AS SELECT * FROM before",
            "SELECT * FROM t VERSION AS OF 1 EMIT CHANGES",
        ):
            with pytest.raises(NotSupported, match="VERSION AS OF 1 is read once"):
                app.sql(statement)


@pytest.mark.parametrize(
    "statement, place, message",
    [
        ("SELECT * FROM m VERSION AS OF 1", "VERSION AS OF 1", 'table "m" does not keep earlier versions'),
        ("SELECT * FROM s TIMESTAMP AS OF '2026-01-01'", "TIMESTAMP", 'stream "s" does not keep'),
        ("WITH t AS (SELECT 1) SELECT * FROM t VERSION AS OF 1", "VERSION", '"t" is a query of WITH'),
        ("SELECT * FROM t VERSION AS OF 'x'", "VERSION", "takes the number of a version"),
        ("SELECT * FROM t VERSION AS OF 1 + 1", "VERSION", "takes the number of a version"),
        ("SELECT * FROM t TIMESTAMP AS OF 5", "TIMESTAMP", "takes a time as a text"),
        ("SELECT * FROM t TIMESTAMP AS OF 'noon'", "TIMESTAMP", '"noon" is no time'),
        ("SELECT * FROM file://x.csv VERSION AS OF 1", "VERSION", "does not keep earlier versions"),
        ("SELECT * FROM t VERSION AS OF", None, "expected a version after AS OF"),
        ("DESCRIBE HISTORY m", "m", 'table "m" has no versions'),
        ("DESCRIBE HISTORY nothing", "nothing", '"nothing" is not known'),
        ("OPTIMIZE m", "m", 'table "m" has no versions'),
        ("VACUUM m", "m", 'table "m" has no versions'),
        ("VACUUM t RETAIN 1.5 HOURS", "1.5", "expected a whole number of hours"),
        ("VACUUM t RETAIN 1 DAYS", "DAYS", "expected HOURS"),
    ],
)
def test_mistakes_are_told_at_their_place(
    empty: App, statement: str, place: str | None, message: str
) -> None:
    with pytest.raises(Error, match=message) as caught:
        empty.sql(statement)
    if place is not None:
        assert caught.value.place is not None
        assert caught.value.place.column == statement.rindex(place) + 1


def test_a_version_that_is_not_there(lake: tuple[App, Path]) -> None:
    app, _ = lake
    with app, pytest.raises(InvalidOption, match="has no version 9"):
        app.sql("SELECT * FROM t VERSION AS OF 9")


def test_versions_of_a_source(tmp_path: Path) -> None:
    for n in range(3):
        write_deltalake(str(tmp_path / "d"), pa.table({"id": [n]}), mode="append")
    at = f"delta://{tmp_path}/d"
    with App(state=tmp_path / "state") as app:
        assert asked(app, f"SELECT * FROM {at} VERSION AS OF 1") == as_read(tmp_path / "d", 1, "id")
        pairs = (
            f"SELECT n.id FROM {at} VERSION AS OF 2 n LEFT ANTI JOIN {at} VERSION AS OF 1 o ON n.id = o.id"
        )
        assert asked(app, pairs) == [(2,)]
        assert asked(app, f"SELECT COUNT(*) FROM '{at}' TIMESTAMP AS OF '2999-01-01'") == [(3,)]
        app.sql(f"CREATE TABLE copy AS SELECT * FROM {at} VERSION AS OF 0")
        assert asked(app, "SELECT * FROM copy") == [(0,)]
        with pytest.raises(InvalidOption, match="names a version already"):
            app.sql(f"SELECT * FROM '{at}?version=1' VERSION AS OF 1")
        with pytest.raises(InvalidOption, match="has no version 7"):
            app.sql(f"SELECT * FROM {at} VERSION AS OF 7")
        versions = app.sql(f"DESCRIBE HISTORY {at}").rows()
        assert [r["version"] for r in versions] == [2, 1, 0]
        with pytest.raises(NotSupported, match="has no versions"):
            app.sql("DESCRIBE HISTORY file://x.csv")
    with App(state=tmp_path / "state") as app:
        assert asked(app, "SELECT * FROM copy") == [(0,)]


def test_the_history_of_a_table(lake: tuple[App, Path]) -> None:
    app, at = lake
    with app:
        said = app.sql("DESCRIBE HISTORY t").rows()
        there = DeltaTable(str(at / "t")).history()
        assert [(r["version"], r["operation"]) for r in said] == [
            (c["version"], c["operation"]) for c in there
        ]
        assert [r["timestamp"] for r in said] == [
            datetime.fromtimestamp(c["timestamp"] / 1000, UTC) for c in there
        ]
        assert asked(app, "DESCRIBE HISTORY TABLE t") == asked(app, "DESC HISTORY t")
        app.sql("CREATE TABLE history (id INT)")
        assert [r["column"] for r in app.sql("DESCRIBE history").rows()] == ["id"]


@pytest.mark.parametrize("with_file", [True, False])
def test_a_table_has_versions_after_a_restart(tmp_path: Path, with_file: bool) -> None:
    text = f"""CREATE TABLE t (id INT PRIMARY KEY)
               WITH ('extension' = 'delta', 'path' = '{tmp_path / "lake"}', 'flush.interval' = '1h')"""
    with App(text, state=tmp_path / "state") as app:
        app.sql("INSERT INTO t VALUES (1), (2)")
        app._runtime.compactor.flusher.flush("t")
        app.sql("DELETE FROM t WHERE id = 1")
        app.sql("CREATE VIEW v AS SELECT * FROM t VERSION AS OF 1")
        before = sorted(r["id"] for r in app.sql("SELECT * FROM v").rows())
        assert before == [1, 2]
    with App(*([text] if with_file else []), state=tmp_path / "state") as app:
        for name in ("v", "t VERSION AS OF 1"):
            assert sorted(r["id"] for r in app.sql(f"SELECT * FROM {name}").rows()) == before
        assert len(app.sql("DESCRIBE HISTORY t").rows()) >= 2
        assert app.sql("OPTIMIZE t").rows() and app.sql("VACUUM t").rows()


@pytest.mark.parametrize(
    "text",
    ["SELECT * FROM t VERSION AS OF 99999999999999999999", "VACUUM t RETAIN 99999999999999999999 HOURS"],
)
def test_numbers_that_are_too_large(tmp_path: Path, text: str) -> None:
    with (
        App(f"CREATE TABLE t (id INT) WITH ('extension' = 'delta', 'path' = '{tmp_path / 'lake'}')") as app,
        pytest.raises(SqlError, match="number"),
    ):
        app.sql(text)
