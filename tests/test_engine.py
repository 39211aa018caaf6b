"""Who evaluates a batch: in process up to a size, Spark above it, on a local master too; both give the same rows."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.request import urlopen

import pyarrow as pa
import pytest

from millpond import App, Error
from millpond.app.check import check_text, explain_text
from millpond.changes import Offset
from millpond.connectors.source import Source, Split, with_seq
from millpond.engine.batch import Batch, Fitted
from millpond.engine.carrier import Sessions
from millpond.engine.collect import collect
from millpond.engine.row_transfer import Staged, staging_folder, to_frame
from millpond.engine.sizes import SPARK_SECONDS, SPARK_TARGET, BatchSize
from millpond.sql.filters import parse_columns
from millpond.types import Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Engine = Literal["auto", "spark", "process"]
PLAIN = "CREATE STREAM s (k INT, x INT); CREATE TABLE t{} AS SELECT k, x + 1 AS y FROM s;"


def counts(app: App, query: str = "table:t") -> tuple[int, int, int, int]:
    """Batches and rows in process, then by Spark."""
    (row,) = [q for q in app.sql("SHOW QUERIES").rows() if q["name"] == query]
    return row["process_batches"], row["process_rows"], row["spark_batches"], row["spark_rows"]


def numbers(rows: int, first: int = 0) -> pa.Table:
    values = pa.array(range(first, first + rows), pa.int32())
    return pa.table({"k": values, "x": values})


def test_a_small_batch_is_evaluated_in_process_and_a_larger_one_by_spark(spark: SparkSession) -> None:
    with App(PLAIN.format(""), _direct=True) as app:
        app.send("s", numbers(10_000))
        app.drain()
        assert counts(app) == (1, 10_000, 0, 0)
        app.send("s", numbers(10_001, 10_000))
        app.drain()
        assert counts(app) == (1, 10_000, 1, 10_001)
        rows = app.sql("SELECT k, y FROM t").to_arrow()
        assert sorted(rows["k"].to_pylist()) == list(range(20_001))
        assert rows["y"].to_pylist() == [k + 1 for k in rows["k"].to_pylist()]


def test_large_batches_of_a_running_query_go_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    with App(PLAIN.format(""), state=tmp_path) as app:
        app.send("s", numbers(40_000))
        app.drain()
        done = counts(app)
        assert done[1] + done[3] == 40_000 and done[3] > 30_000, done
        app.send("s", numbers(5, 40_000))
        app.drain()
        assert counts(app)[3] == done[3] and counts(app)[1] == done[1] + 5
        assert app.table("t").sql_scalar("SUM(y)") == sum(range(1, 40_006))
    staged = staging_folder(spark)
    assert staged.exists() and not list(staged.iterdir()), "what was staged is removed"


def test_few_rows_with_many_bytes_go_to_spark(spark: SparkSession) -> None:
    with App(
        "CREATE STREAM s (v STRING);"
        " CREATE TABLE t WITH ('process.max.bytes' = '1MB') AS SELECT length(v) AS n FROM s;",
        _direct=True,
    ) as app:
        app.send("s", [{"v": "x" * 1_000}] * 100)
        app.drain()
        assert counts(app) == (1, 100, 0, 0)
        app.send("s", [{"v": "x" * 100_000}] * 100)
        app.drain()
        assert counts(app) == (1, 100, 1, 100)


@pytest.mark.parametrize(
    ("app_wide", "own", "expected"),
    [
        ("auto", " WITH ('process.max.rows' = '9')", "spark"),
        ("auto", " WITH ('process.max.rows' = '10')", "process"),
        ("spark", "", "spark"),
        ("process", " WITH ('process.max.rows' = '0')", "process"),
        ("spark", " WITH ('engine' = 'process')", "process"),
        ("process", " WITH ('engine' = 'spark')", "spark"),
        ("spark", " WITH ('engine' = 'auto')", "process"),
    ],
)
def test_engine_of_the_app_and_of_a_statement(
    spark: SparkSession, app_wide: Engine, own: str, expected: str
) -> None:
    with App(PLAIN.format(own), engine=app_wide, _direct=True) as app:
        app.send("s", numbers(10))
        app.drain()
        assert counts(app) == ((1, 10, 0, 0) if expected == "process" else (0, 0, 1, 10))


def test_only_spark_can() -> None:
    only = "SELECT regexp_extract(v, '(?<=a)b+', 0) AS m FROM s"
    with pytest.raises(Error, match="only Spark can evaluate this statement") as caught:
        App(f"CREATE STREAM s (v STRING); CREATE TABLE t WITH ('engine' = 'process') AS {only}")
    assert caught.value.place is not None
    with App("CREATE STREAM s (v STRING)", engine="process", _direct=True) as app:
        with pytest.raises(Error, match="only Spark can evaluate this statement"):
            app.sql(f"CREATE TABLE t AS {only}")
        assert app.tables() == [] and app.sql("SHOW QUERIES").rows() == []
    with pytest.raises(Error, match="engine"):
        App(engine="duckdb")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ("auto", "batch stage: in process up to 10,000 rows and 16 MB, else by Spark"),
        ("spark", "batch stage: by Spark (engine = spark)"),
        ("process", "batch stage: in process (engine = process)"),
    ],
)
def test_explain_names_the_engine(engine: Engine, line: str) -> None:
    with App("CREATE STREAM s (x INT)", engine=engine, _direct=True) as app:
        lines = [r["plan"] for r in app.sql("EXPLAIN CREATE TABLE t AS SELECT x FROM s").rows()]
        assert line in lines


@pytest.mark.parametrize(
    ("window", "line"),
    [
        (
            "",
            "merge stage: in process, large batches too: the groups of a batch are merged with the stored ones",
        ),
        (
            " WINDOW SESSION(at, 5m)",
            "merge stage: in process, large batches too: the groups of a batch are merged with the stored ones"
            " and become sessions",
        ),
    ],
)
def test_explain_says_who_merges_groups(window: str, line: str) -> None:
    with App("CREATE STREAM s (k STRING, at TIMESTAMP)", engine="spark") as app:
        rows = app.sql(f"EXPLAIN CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k{window}").rows()
    assert line in [r["plan"] for r in rows]


def test_explain_names_the_function_that_only_spark_has() -> None:
    with App("CREATE STREAM s (x INT)") as app:
        rows = app.sql("EXPLAIN SELECT CAST(format_number(x, 2) AS STRING) AS n FROM s").rows()
    assert "batch stage: by Spark (the type of FORMAT_NUMBER is not known)" in [r["plan"] for r in rows]


@pytest.mark.slow
def test_explain_of_a_topic() -> None:
    """The rule is that of every stream."""
    declared = (
        "CREATE STREAM k (x INT) WITH ('connector' = 'kafka://topic', 'bootstrap.servers' = 'localhost:1');"
    )
    for own, line in (
        ("", "batch stage: in process up to 10,000 rows and 16 MB, else by Spark"),
        (" WITH ('engine' = 'spark')", "batch stage: by Spark (engine = spark)"),
    ):
        text = check_text(f"{declared} CREATE TABLE t{own} AS SELECT x FROM k")
        assert not text.errors
        assert line in list(explain_text(text))[-1][1]
    into = "INSERT INTO kafka://out SELECT x FROM k WITH ('mode' = 'realtime', 'on.error' = 'fail'{})"
    text = check_text(f"{declared} {into.format('')}")
    lines = list(explain_text(text))[-1][1]
    assert "real time: read k, evaluated by Spark alone, row by row" in lines
    assert not any(line.startswith("batch stage") for line in lines)
    (error,) = check_text(f"""{declared} {into.format(", 'engine' = 'process'")}""").errors
    assert "Spark alone evaluates it" in error.message


def test_metrics_count_by_engine(spark: SparkSession) -> None:
    with App(PLAIN.format(" WITH ('process.max.rows' = '5')"), _direct=True) as app:
        for rows in (3, 7):
            app.send("s", numbers(rows))
            app.drain()
        server = app.serve()
        with urlopen(f"{server.url}/metrics") as answer:
            found = {line.partition(" # ")[0] for line in answer.read().decode().splitlines()}
    for engine, rows in (("process", 3), ("spark", 7)):
        labels = f'{{engine="{engine}",query="table:t"}}'
        assert found & {f"millpond_query_engine_batches_total{labels} 1.0"}
        assert found & {f"millpond_query_engine_rows_total{labels} {rows}.0"}


STATEMENTS = """
CREATE STREAM s (k INT, x BIGINT, d DECIMAL(12, 2), f DOUBLE, v STRING, at TIMESTAMP,
  WATERMARK FOR at AS at - INTERVAL 5 SECONDS);
CREATE TABLE dim (k INT PRIMARY KEY, name STRING, n INT);
CREATE TABLE many (k INT PRIMARY KEY, label STRING);
CREATE TABLE acc (k INT PRIMARY KEY, total BIGINT, last STRING);
CREATE TABLE rows_ AS SELECT s.k, s.x * 2 AS x2, d / 3 AS d3, upper(v) AS u, at FROM s WHERE x % 3 <> 0;
CREATE TABLE joined AS SELECT s.x, s.k, dim.name, many.label, (SELECT MAX(n) FROM dim b WHERE b.k <= s.k) AS top
  FROM s LEFT JOIN dim ON s.k = dim.k JOIN many ON s.x % 30000 = many.k;
CREATE TABLE groups AS SELECT k, COUNT(*) AS c, SUM(d) AS sd, MIN(v) AS lo, MAX(at) AS hi, COUNT(DISTINCT v) AS dv,
  AVG(x) AS ax, FIRST(v) AS first_v FROM s GROUP BY k;
CREATE TABLE windows AS SELECT window(at, '1 minute').start AS w, k, SUM(x) AS sx FROM s
  GROUP BY window(at, '1 minute'), k;
UPDATE acc SET total = acc.total + s.x, last = s.v FROM s WHERE acc.k = s.k AND s.x % 2 = 0;
"""
TABLES = ("rows_", "joined", "groups", "windows", "acc")


def some_rows(seed: int, rows: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    began = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        {
            "k": chance.choice([None, *range(20)]),
            "x": seed * 100_000 + i,
            "d": None if chance.random() < 0.1 else Decimal(chance.randrange(-(10**6), 10**6)) / 100,
            "f": chance.choice([None, 0.5, -1.25, 1e300]),
            "v": chance.choice([None, "", "a", "Zürich", "b" * 40]),
            "at": began + timedelta(seconds=i // 50, microseconds=chance.randrange(10**6)),
        }
        for i in range(rows)
    ]


def test_both_engines_give_the_same_rows(spark: SparkSession) -> None:
    found: dict[str, dict[str, Any]] = {}
    for engine in ("process", "spark"):
        with App(STATEMENTS, engine=engine, _direct=True) as app:
            app.table("dim").bulk_insert([{"k": k, "name": f"n{k}", "n": k * k % 7} for k in range(0, 20, 2)])
            app.table("many").bulk_insert([{"k": k, "label": f"l{k % 9}"} for k in range(25_000)])
            app.table("acc").bulk_insert([{"k": k, "total": 0, "last": None} for k in range(10)])
            for seed, rows in enumerate((12_000, 3, 11_000)):
                app.send("s", some_rows(seed, rows))
                app.drain()
                if seed == 1:
                    app.table("many").insert({"k": 24_999, "label": "changed"})
            for query in app.sql("SHOW QUERIES").rows():
                assert query[f"{engine}_rows"] == 23_003, query
            found[engine] = {t: app.sql(f"SELECT * FROM {t}").to_arrow() for t in TABLES}
    for name in TABLES:
        one, other = found["process"][name], found["spark"][name]
        assert one.schema == other.schema
        assert one.num_rows and sorted(map(repr, one.to_pylist())) == sorted(map(repr, other.to_pylist())), (
            name
        )


def rows_of_all_types() -> pa.Table:
    ddl = (
        "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(38, 10), i STRING, j BINARY,"
        " k DATE, l TIMESTAMP, m TIMESTAMP_NTZ, n ARRAY<STRING>, o MAP<STRING, INT>,"
        " p STRUCT<x: INT, y: ARRAY<STRUCT<z: DECIMAL(5, 2)>>>, `odd name; ``q``` INT"
    )
    schema: Schema = parse_columns(ddl)
    row = {
        "a": True, "b": -128, "c": -32768, "d": -(2**31), "e": 2**63 - 1, "f": 1.5, "g": float("nan"),
        "h": Decimal("1234567890123456789012345678.0123456789"), "i": "Zürich\n'\"", "j": b"\x00\xff",
        "k": date(1582, 10, 4), "l": datetime(1, 1, 1, tzinfo=UTC), "m": datetime(9999, 12, 31, 23, 59, 59, 999999),
        "n": ["", None], "o": [("k", None), ("l", 1)], "p": {"x": None, "y": [{"z": Decimal("-1.25")}, None]},
        "odd name; `q`": 7,
    }  # fmt: skip
    nothing = dict.fromkeys(row)
    return pa.Table.from_pylist([row, nothing] * 3_000, schema.arrow())


def test_staged_rows_are_the_same(spark: SparkSession) -> None:
    rows = rows_of_all_types()
    staged = Staged(spark, rows)
    assert "parquet" in staged.frame._jdf.queryExecution().toString().lower()
    found, with_plan = collect(staged.frame), collect(to_frame(spark, rows))
    assert found.schema == with_plan.schema
    assert (
        list(map(repr, found.to_pylist()))
        == list(map(repr, with_plan.to_pylist()))
        == list(map(repr, rows.to_pylist()))
    )
    staged.close()


class Given(Source):
    """Rows of this process, which are staged for Spark."""

    kind = "given"
    schemes = ("given",)
    staged = True
    rows = pa.table({"id": pa.array(range(6_000), pa.int64()), "more": pa.array([2] * 6_000, pa.int64())})

    def schema(self) -> Schema:
        return parse_columns("id BIGINT, more BIGINT")

    def latest(self, start: Offset | None) -> Offset:
        return {"at": 1}

    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        return [Split(self.rows.num_rows, None)]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return (with_seq(b, 0) for b in self.rows.to_batches())


def test_what_is_staged_of_a_batch_is_removed(spark: SparkSession) -> None:
    staged = staging_folder(spark)
    before = set(staged.iterdir()) if staged.exists() else set()
    source = Given("given://", {}, None)
    batch = Batch(source, None, {"at": 1}, carrier=Sessions(source, lambda: spark), shared=True)
    frames = [b.frame for b in (batch, Fitted(batch, parse_columns("id BIGINT")))]
    assert [f.count() for f in frames] == [6_000, 6_000] and len(set(staged.iterdir()) - before) == 2
    batch.close()
    assert not set(staged.iterdir()) - before


def test_shipped_rows_are_the_same(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a cluster, whose executors see no file of the driver: Arrow with the tasks, several for many bytes."""
    monkeypatch.setattr("millpond.engine.row_transfer.is_local", lambda _: False)
    monkeypatch.setattr("millpond.engine.row_transfer._TASK", 100_000)
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.localRelationThreshold", "1")
    rows = rows_of_all_types()
    for some in (rows, rows.slice(1, 5_001), rows.slice(3, 1)):
        staged = Staged(session, some)
        plan = staged.frame._jdf.queryExecution().toString()
        assert "Scan ExistingRDD" in plan and "parquet" not in plan.lower()
        assert staged.frame.rdd.getNumPartitions() == math.ceil(some.nbytes / 100_000)
        assert list(map(repr, collect(staged.frame).to_pylist())) == list(map(repr, some.to_pylist()))
    staged = Staged(session, rows.slice(0, 0))
    assert collect(staged.frame).num_rows == 0 and collect(staged.table).num_rows == 0


def test_tables_that_are_shipped_are_broadcast(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.engine.row_transfer.is_local", lambda _: False)
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.localRelationThreshold", "1")
    rows = pa.table({"k": range(6_000), "v": range(6_000)})
    Staged(session, rows).frame.createOrReplaceTempView("many")
    Staged(session, rows).table.createOrReplaceTempView("few")
    plan = session.sql("SELECT m.k, f.v FROM many m LEFT JOIN (SELECT * FROM few WHERE v > 3) f ON f.k = m.k")
    assert "BroadcastHashJoin" in plan._jdf.queryExecution().toString()


def test_a_batch_too_large_to_ship_is_cut(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.engine.row_transfer.is_local", lambda _: False)
    monkeypatch.setattr("millpond.engine.batch.SHIPPED", 40_000)
    sql = "CREATE STREAM s (id BIGINT, x BIGINT); CREATE TABLE t AS SELECT id, x * 2 AS y FROM s;"
    with App(sql, engine="spark", _direct=True) as app:
        app.send("s", pa.table({"id": range(6_000), "x": range(6_000)}))
        app.drain(60)
        assert app.sql("SELECT COUNT(*) AS n, SUM(y) AS y FROM t").rows() == [
            {"n": 6_000, "y": sum(range(0, 12_000, 2))}
        ]
        # _seq is a third column: 6,000 rows have 144,000 bytes.
        assert app.sql("SHOW QUERIES").rows()[0]["spark_batches"] == 4


def test_types_without_a_form_in_files_go_with_the_plan(spark: SparkSession) -> None:
    rows = pa.table({"i": pa.array([timedelta(days=1)] * 6_000, pa.duration("us"))})
    assert collect(Staged(spark, rows).frame)["i"].to_pylist() == [timedelta(days=1)] * 6_000


def test_names_that_differ_in_case_alone_are_not_staged(spark: SparkSession) -> None:
    rows = pa.table({"v": [{"a": 1, "A": 2}] * 6_000})
    assert collect(Staged(spark, rows).frame).to_pylist() == rows.to_pylist()


def test_what_changes_between_two_jobs_is_evaluated_once(spark: SparkSession) -> None:
    """Before: rows were filtered by rand() twice, and keys were collected at another now() than rows."""
    with App("CREATE STREAM s (k INT, x INT); CREATE TABLE d (k INT PRIMARY KEY)", _direct=True) as app:
        for condition in ("x <= 7 AND rand() < 0.5", "x <= 7 AND now() > TIMESTAMP '2026-01-01 00:00:00'"):
            query = f"EXPLAIN CREATE TABLE t AS SELECT s.k FROM s JOIN d ON s.k = d.k WHERE {condition}"
            (line,) = [r["plan"] for r in app.sql(query).rows() if r["plan"].startswith("stream stage")]
            assert line.endswith("filter (s.x <= 7)") or line.endswith("filter (`s`.`x` <= 7)"), line
        app.sql("CREATE TABLE half AS SELECT k FROM s WHERE rand() < 0.5")
        app.send("s", numbers(40_000))
        app.drain()
        assert 18_000 < len(app.table("half")) < 22_000


def test_a_running_update_that_only_spark_can_fold() -> None:
    declared = "CREATE STREAM s (k INT, v STRING); CREATE TABLE d (k INT PRIMARY KEY, n STRING);"
    update = "UPDATE d SET n = regexp_extract(d.n, '(?<=a)b+', 0) FROM s WHERE d.k = s.k"
    with pytest.raises(Error, match="only Spark can evaluate this statement"):
        App(f"{declared} {update} WITH ('engine' = 'process')", _direct=True)
    with App(declared, engine="process", _direct=True) as app:
        with pytest.raises(Error, match="only Spark can evaluate this statement"):
            app.sql(update)
        assert app.sql("SHOW QUERIES").rows() == []


@pytest.mark.parametrize(
    ("fixed", "per_row"), [(0.5, 1e-6), (2.4, 1e-6), (5.0, 1e-6), (0.5, 2e-5), (0.3, 1e-7), (5.0, 1e-4)]
)
def test_sizes_come_to_rest(fixed: float, per_row: float) -> None:
    """Batches take the target, or what lets rows take as long as the fixed cost."""
    size, chance = BatchSize(), random.Random(3)
    taken: list[tuple[int, float]] = []
    for number in range(80):
        rows = size.rows
        seconds = (fixed + per_row * rows) * chance.uniform(0.97, 1.03) * (4 if number == 0 else 1)
        taken.append((rows, seconds))
        size.note(rows, seconds, fixed=SPARK_SECONDS)
    for rows, seconds in taken[60:]:
        assert seconds < 2.2 * max(SPARK_TARGET, 2 * fixed), taken
        assert rows == size.most or per_row * rows > 0.1 * max(SPARK_TARGET - fixed, fixed), taken


def test_a_batch_has_a_fixed_cost() -> None:
    size = BatchSize(1_000_000, 2.0)
    size.note(1_000_000, 4.0, fixed=SPARK_SECONDS)
    assert size.rows == 1_000_000
    size.note(1_000_000, 7.5, fixed=SPARK_SECONDS)
    assert size.rows == 500_000, "half of the rows take half of what rows cost"
    size.note(500_000, 60.0, fixed=SPARK_SECONDS)
    assert size.rows == 125_000, "one very slow batch does not make the next ones tiny"
    size.note(125_000, 1.0, fixed=SPARK_SECONDS)
    assert size.rows == 250_000
