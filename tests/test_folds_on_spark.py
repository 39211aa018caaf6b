"""Running UPDATE, DELETE, MERGE and UPSERT that Spark's executors fold: beside those of this process, and beside a
model that applies one event after another.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millpond import App
from millpond.engine.spark_fold import SparkFold
from millpond.engine_rule import Engine
from millpond.streaming import fold
from millpond.streaming.fold import FoldRunner
from tests.engines import both
from tests.fold_cases import CASES, Event, Row, as_set
from tests.spark_jobs import Jobs

if TYPE_CHECKING:
    from millpond.engine.batch import Batch

pytestmark = pytest.mark.slow
NAMES = {name: n for n, name in enumerate(CASES)}
DIVIDED = [name for name in CASES if name not in ("merge by another column", "merge by anything")]
"""The others are folded for the whole table, by the driver."""


def declared(name: str, n: int) -> str:
    """A case with a table and a stream of its own."""
    table, sql, _ = CASES[name]
    key = " PRIMARY KEY" if table == "t" else ""
    sql = f"{sql} ".replace(" log ", f" log{n} ").replace(f"INTO {table} ", f"INTO s{n} ").replace(
        f"UPDATE {table} ", f"UPDATE s{n} "
    ).replace(f"FROM {table} ", f"FROM s{n} ").replace(f" {table}.", f" s{n}.")  # fmt: skip
    if sql.startswith("MERGE"):
        sql = sql.replace(f" s{n}.", " t.")
    return f"""
CREATE STREAM log{n} (id INT, x INT, a INT);
CREATE TABLE s{n} (id INT{key}, x INT, y INT);
CREATE TABLE logged{n} AS SELECT * FROM log{n};
{sql};
"""


SQL = """
CREATE STREAM e (id INT, a INT, b INT);
CREATE TABLE other (id INT PRIMARY KEY, z INT);
INSERT INTO other VALUES (0, 1), (1, 2), (2, NULL);
""" + "".join(declared(name, n) for name, n in NAMES.items())


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of events of each fold in this process."""
    found: list[int] = []
    find = FoldRunner.find

    def noted(self: FoldRunner, events: pa.Table, now: Any) -> Any:
        found.append(events.num_rows)
        return find(self, events, now)

    with monkeypatch.context() as patch:
        patch.setattr(FoldRunner, "find", noted)
        yield found


@pytest.mark.parametrize("seed", [1, 2])
def test_as_one_event_after_another(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """With one seed small tables, which are given to Spark whole, with the other one rows that are looked up."""
    if seed == 2:
        monkeypatch.setattr(fold, "SCANNED", 0)
    chance = random.Random(seed)
    small = [None, *range(-1, 5)]
    before = [{"id": n, "x": chance.choice(small), "y": chance.choice(small)} for n in range(5)]
    tables: dict[str, list[Row]] = {name: list(before) for name in CASES}
    logs: dict[str, list[Row]] = {name: [] for name in CASES}
    with both(SQL) as apps:
        for n in NAMES.values():
            for app in apps.values():
                app.table(f"s{n}").bulk_insert(before)
        for size in (40, 1, 300):
            sent: list[Event] = [
                {"id": chance.randrange(7), "a": chance.choice(small), "b": chance.choice(small)}
                for _ in range(size)
            ]
            for name, (_, _, model) in CASES.items():
                for event in sent:
                    tables[name] = model(tables[name], event, logs[name])
            for engine, app in apps.items():
                app.send("e", sent)
                with counted(monkeypatch) as here:
                    app.drain(300)
                whole = len(CASES) - len(DIVIDED)
                assert len(here) == (len(CASES) if engine == "process" else whole)
        for name, n in NAMES.items():
            found = {engine: app.sql(f"SELECT * FROM s{n}").to_arrow() for engine, app in apps.items()}
            assert found["process"].schema == found["spark"].schema
            for rows in found.values():
                assert as_set(rows.to_pylist()) == as_set(tables[name]), name
            logged = {engine: app.sql(f"SELECT * FROM logged{n}").to_arrow() for engine, app in apps.items()}
            assert logged["spark"].equals(logged["process"]), name
            if "RETURNING" in CASES[name][1]:
                assert as_set(logged["spark"].to_pylist()) == as_set(logs[name]) and logs[name]
        rows = {
            engine: [(q["name"], q["rows"], q["errors"]) for q in app.sql("SHOW QUERIES").rows()]
            for engine, app in apps.items()
        }
        assert rows["spark"] == rows["process"]


TYPES = (
    "a BOOLEAN, b TINYINT, c SMALLINT, d BIGINT, f FLOAT, g DOUBLE, h DECIMAL(38, 10), i STRING, j BINARY, k DATE,"
    " l TIMESTAMP, m TIMESTAMP_NTZ, n ARRAY<STRING>, o MAP<STRING, INT>, p STRUCT<x: INT, y: ARRAY<STRING>>"
)
COLUMNS = "abcdfghijklmnop"
ALL = f"""
CREATE STREAM e (id INT, {TYPES});
CREATE STREAM out (id INT, {TYPES});
CREATE TABLE copied AS SELECT * FROM out;
CREATE TABLE last (id INT PRIMARY KEY, {TYPES});
CREATE TABLE rows_ (id INT, {TYPES});
CREATE TABLE text (i STRING PRIMARY KEY, n INT, total DECIMAL(38, 10), at TIMESTAMP);
UPSERT INTO last SELECT * FROM e WHERE id % 3 <> 0 ON last.id = e.id;
UPDATE rows_ SET {", ".join(f"{c} = e.{c}" for c in COLUMNS)} FROM e WHERE rows_.id = e.id
  RETURNING e.id, {", ".join(f"rows_.{c}" for c in COLUMNS)} INTO out;
MERGE INTO text t USING e ON t.i = e.i
  WHEN MATCHED AND e.a THEN DELETE
  WHEN MATCHED THEN UPDATE SET n = t.n + 1, total = t.total + e.h / 3, at = greatest(t.at, e.l)
  WHEN NOT MATCHED AND e.i IS NOT NULL THEN INSERT (i, n, total, at) VALUES (e.i, 1, e.h, e.l);
"""


def test_values_of_all_types(spark: SparkSession) -> None:
    chance = random.Random(3)

    def some(*values: Any) -> Any:
        return chance.choice([None, *values])

    def event() -> Row:
        return {
            "id": some(*range(12)), "a": some(True, False), "b": some(-128, 127), "c": some(-32768),
            "d": some(2**63 - 1), "f": some(1.5, float("inf")), "g": some(float("nan"), -0.0, 1e300),
            "h": some(Decimal("123456789012345678901234.0123456789"), Decimal("-0.0000000001"), Decimal(3)),
            "i": some("", "Zürich\n'\"", "a", "b"), "j": some(b"\x00\xff", b""),
            "k": some(date(1582, 10, 4), date(9999, 12, 31)),
            "l": some(datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
            "m": some(datetime(2026, 3, 29, 2, 30)), "n": some([], ["", None]), "o": some({"k": None, "l": 1}, {}),
            "p": some({"x": None, "y": ["z"]}, {"x": 1, "y": None}),
        }  # fmt: skip

    batches = [[event() for _ in range(size)] for size in (200, 1, 50)]
    with both(ALL) as apps:
        for app in apps.values():
            app.table("rows_").bulk_insert([{"id": n // 2} for n in range(20)])
            for batch in batches:
                app.send("e", batch)
                app.drain(300)
        for table in ("last", "rows_", "text", "copied"):
            one, other = (app.sql(f"SELECT * FROM {table}").to_arrow() for app in apps.values())
            assert one.schema == other.schema
            assert one.num_rows
            rows = [list(map(repr, t.to_pylist())) for t in (one, other)]
            assert rows[0] == rows[1] if table == "copied" else sorted(rows[0]) == sorted(rows[1]), table


SUMS = """
CREATE STREAM e (id INT, a INT);
CREATE TABLE t (id INT PRIMARY KEY, x INT);
UPDATE t SET x = x + e.a FROM e WHERE t.id = e.id;
"""


def test_few_bytes_reach_the_driver(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(spark)
    rows = pa.table(
        {
            "id": pa.array([i % 100 for i in range(100_000)], pa.int32()),
            "a": pa.array([1] * 100_000, pa.int32()),
        }
    )
    with App(SUMS, _direct=True) as app, counted(monkeypatch) as here:
        app.table("t").bulk_insert([{"id": n, "x": n} for n in range(100)])
        app.send("e", rows)
        app.drain(300)
        assert app.sql("SELECT COUNT(*) AS n, SUM(x) AS x FROM t").rows() == [
            {"n": 100, "x": 100_000 + sum(range(100))}
        ]
        (query,) = app.sql("SHOW QUERIES").rows()
        assert (query["rows"], query["spark_rows"]) == (100_000, 100_000) and not here
    assert 0 < sum(s.result for s in jobs.stages) < 1_000_000


def test_a_row_that_changes_meanwhile(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark folds again; if rows change each time, this process folds while no other commit can happen."""
    run = SparkFold.run
    changes: list[dict[str, int]] = []
    folded = 0

    def changing(self: SparkFold, stage: Any, batch: Batch, *given: Any, **more: Any) -> Any:
        nonlocal folded
        folded += 1
        found = run(self, stage, batch, *given, **more)
        if changes:
            app.table("t").insert(changes.pop())
        return found

    monkeypatch.setattr(SparkFold, "run", changing)
    monkeypatch.setattr(fold, "SCANNED", 3)
    with App(SUMS, engine="spark", _direct=True) as app, counted(monkeypatch) as here:
        app.table("t").bulk_insert([{"id": n, "x": 0} for n in range(5)])
        for others, ids, folds in (
            ([(1, 10)], (1, 2), 2),
            ([(4, 10)], (1, 2), 1),
            ([(1, 20), (2, 20), (1, 30)], (1, 2), 3),
        ):
            changes[:] = [{"id": i, "x": x} for i, x in reversed(others)]
            was = {r["id"]: r["x"] for r in app.sql("SELECT * FROM t").rows()} | dict(others)
            folded = 0
            app.send("e", [{"id": i, "a": a} for i in ids for a in (1, 2)])
            app.drain(300)
            assert folded == folds and not changes
            now = {r["id"]: r["x"] for r in app.sql("SELECT * FROM t").rows()}
            assert now == {i: x + (3 if i in ids else 0) for i, x in was.items()}
        assert here == [4], "only the last batch is folded here"


def test_an_event_that_cannot_be_applied(spark: SparkSession) -> None:
    """Its row becomes an error record, the others are applied."""
    with both(SUMS) as apps:
        found = []
        for app in apps.values():
            app.table("t").bulk_insert([{"id": 1, "x": 2_147_483_000}, {"id": 2, "x": 0}])
            app.send("e", [{"id": 1, "a": 600}, {"id": 2, "a": 1}, {"id": 1, "a": 600}, {"id": 2, "a": 5}])
            app.drain(300)
            (query,) = app.sql("SHOW QUERIES").rows()
            errors = app.sql(f"SELECT seq, reason, row FROM `{query['name']}$errors`").rows()
            found.append((app.sql("SELECT * FROM t ORDER BY id").rows(), errors, query["errors"]))
        assert found[0] == found[1] and found[0][2] == 1
        assert found[0][0] == [{"id": 1, "x": 2_147_483_600}, {"id": 2, "x": 6}]


def test_rows_of_a_database(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was folded is compared with the rows in the transaction; nothing has changed, so Spark folds once."""
    sql = """CREATE STREAM e (id INT, a INT);
    CREATE TABLE t (id INT PRIMARY KEY, x INT) WITH ('extension' = 'sqlite', 'path' = '{0}/{1}.db');
    CREATE TABLE u (id INT, x INT) WITH ('extension' = 'sqlite', 'path' = '{0}/{1}.db');
    UPDATE u SET x = x + e.a FROM e WHERE u.id = e.id;
    MERGE INTO t USING e ON t.id = e.id WHEN MATCHED AND e.a = 3 THEN DELETE
      WHEN MATCHED THEN UPDATE SET x = t.x + 100 WHEN NOT MATCHED THEN INSERT (id, x) VALUES (e.id, e.a);"""
    run, folded, found = SparkFold.run, [], []

    def noted(self: SparkFold, *given: Any, **more: Any) -> Any:
        folded.append(self)
        return run(self, *given, **more)

    monkeypatch.setattr(SparkFold, "run", noted)
    engines: tuple[Engine, ...] = ("process", "spark")
    for engine in engines:
        with App(sql.format(tmp_path, engine), engine=engine, _direct=True) as app:
            app.table("t").bulk_insert([{"id": i, "x": 0} for i in range(5)])
            app.table("u").bulk_insert([{"id": i // 2, "x": 0} for i in range(6)])
            for most in (20_000, 2):
                monkeypatch.setattr(fold, "SCANNED", most)
                app.send("e", [{"id": i % 7, "a": i % 4} for i in range(40)])
                app.drain(300)
            found.append([as_set(app.sql(f"SELECT * FROM {t}").rows()) for t in ("t", "u")])
    assert found[0] == found[1] and len(folded) == 4


def test_many_returned_rows_of_one_row(spark: SparkSession) -> None:
    """Their cost grows with their number, not with its square."""
    sql = """CREATE STREAM e (id INT, a INT); CREATE STREAM out (id INT, x INT, a INT);
    CREATE TABLE t (id INT PRIMARY KEY, x INT); CREATE TABLE copied AS SELECT * FROM out;
    UPDATE t SET x = x + e.a FROM e WHERE t.id = e.id AND t.x + e.a >= 0 RETURNING t.id, t.x, e.a INTO out;"""
    with App(sql, _direct=True) as app:
        app.table("t").insert({"id": 1, "x": 0})
        app.send(
            "e", pa.table({"id": pa.array([1] * 30_000, pa.int32()), "a": pa.array([1] * 30_000, pa.int32())})
        )
        app.drain(300)
        assert app.table("copied").sql_scalar("MAX(x)") == 30_000
        assert app.sql("SELECT x FROM copied").to_arrow()["x"].to_pylist() == list(range(1, 30_001))


def test_events_of_one_row_of_the_stream_stay_in_order(spark: SparkSession) -> None:
    """A row may give several events, which have its number."""
    sql = """
        CREATE STREAM e (id INT, xs ARRAY<INT>);
        CREATE TABLE t (id INT PRIMARY KEY, x INT, n INT);
        UPSERT INTO t SELECT id, x, 1 AS n FROM e LATERAL VIEW explode(xs) AS x ON t.id = e.id;
        CREATE TABLE u (id INT PRIMARY KEY, x INT);
        MERGE INTO u USING (SELECT id, x FROM e LATERAL VIEW explode(xs) AS x) AS s ON u.id = s.id
        WHEN MATCHED AND s.x < 0 THEN DELETE
        WHEN MATCHED THEN UPDATE SET x = s.x
        WHEN NOT MATCHED AND s.x >= 0 THEN INSERT (id, x) VALUES (s.id, s.x);
    """
    chance = random.Random(3)
    sent = [{"id": n % 7, "xs": [chance.randint(-3, 9) for _ in range(3)]} for n in range(60)]
    upserted: dict[int, int] = {}
    merged: dict[int, int] = {}
    for row in sent:
        for x in row["xs"]:
            upserted[row["id"]] = x
            if x >= 0:
                merged[row["id"]] = x
            else:
                merged.pop(row["id"], None)
    with App(sql, engine="spark", _direct=True) as app:
        app.send("e", sent)
        app.drain(300)
        assert {r["id"]: r["x"] for r in app.sql("SELECT id, x FROM t").rows()} == upserted
        assert {r["id"]: r["x"] for r in app.sql("SELECT id, x FROM u").rows()} == merged


def test_other_tables_that_change_meanwhile(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = """
        CREATE STREAM e (id INT, a INT);
        CREATE TABLE blocked (id INT PRIMARY KEY);
        CREATE TABLE t (id INT PRIMARY KEY, x INT);
        UPDATE t SET x = e.a FROM e WHERE t.id = e.id AND t.id NOT IN (SELECT id FROM blocked);
    """
    run = SparkFold.run

    def changing(self: SparkFold, stage: Any, batch: Batch, *given: Any, **more: Any) -> Any:
        found = run(self, stage, batch, *given, **more)
        if not len(app.table("blocked")):
            app.table("blocked").insert({"id": 2})
        return found

    monkeypatch.setattr(SparkFold, "run", changing)
    with App(sql, engine="spark", _direct=True) as app:
        app.table("t").bulk_insert([{"id": n, "x": 0} for n in (1, 2)])
        app.send("e", [{"id": 1, "a": 5}, {"id": 2, "a": 5}])
        app.drain(300)
        assert app.sql("SELECT * FROM t ORDER BY id").rows() == [{"id": 1, "x": 5}, {"id": 2, "x": 0}]


def test_the_same_rows() -> None:
    rows = pa.table({"id": [1, 2], "x": [float("nan"), None]})
    assert fold.have_same_rows(rows, rows.slice(0))
    assert fold.have_same_rows(rows, rows.take([1, 0]))
    assert not fold.have_same_rows(rows, pa.table({"id": [1, 2], "x": [float("nan"), 1.0]}))
    assert not fold.have_same_rows(rows, rows.slice(1))
