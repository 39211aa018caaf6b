"""X1, X2, X5: what Spark evaluates here, beside jobs written by hand: rows a second, CPU seconds, bytes to the driver.

The rows of ours lie in an embedded stream, those of the peers in Parquet files that Spark's own reader scans. The rates
of X1 are until the rows are Arrow in the driver; what ours takes to apply them to a table and to write the journal is
told apart. CPU is that of the driver, the JVM and its Python workers.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bench.figure import Figure
from bench.joins import DECLARED, ROWS, SHAPES, Shape, made_up
from bench.process_tree import cpu_seconds
from millpond import App
from millpond.engine.session import get_session
from tests.spark_jobs import Jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 16
BY_TRIGGER = (4, 8)
"""Files of a batch that the peers are tried with; ours finds its own."""
GROUPS = (100, 100_000)
_TURNS = 3
_STATE = pa.schema([("g", pa.int64()), ("n", pa.int64()), ("total", pa.float64())])


class Taken(NamedTuple):
    """What a run took: wall and CPU seconds until the rows were in the driver, and wall seconds to keep them."""

    wall: float
    cpu: float
    kept: float = 0.0


def run() -> Iterator[Figure]:
    spark = get_session()
    trades, tables = made_up()
    with tempfile.TemporaryDirectory() as scratch, App(DECLARED) as app:
        folder = Path(scratch)
        parquet = _written(trades, folder)
        for name, rows in tables.items():
            app.table(name).bulk_insert(rows)
        for i in range(FILES):
            app.send("trades", trades.slice(i * ROWS // FILES, ROWS // FILES))
        for shape in SHAPES[:3]:
            yield from _join(app, spark, tables, shape, parquet, folder)
        for groups in GROUPS:
            yield from _aggregate(app, spark, groups, parquet, folder)


def _written(trades: pa.Table, folder: Path) -> Path:
    parquet = folder / "parquet"
    parquet.mkdir()
    for i in range(FILES):
        pq.write_table(trades.slice(i * ROWS // FILES, ROWS // FILES), parquet / f"{i:02}.parquet")
    return parquet


def in_turns(*runs: Callable[[], Taken]) -> list[Taken]:
    """Returns the quickest run of each, and the least CPU of all its runs. They take turns, so that each is as warm as
    the others; the first turn does not count.
    """
    taken = [[run() for run in runs] for _ in range(_TURNS + 1)][1:]
    found = []
    for each in zip(*taken, strict=True):
        quickest = min(each, key=lambda t: t.wall + t.kept)
        found.append(quickest._replace(cpu=min(t.cpu for t in each)))
    return found


def _join(
    app: App, spark: SparkSession, tables: Mapping[str, pa.Table], shape: Shape, parquet: Path, folder: Path
) -> Iterator[Figure]:
    create, insert = f"CREATE TABLE out ({shape.columns})", f"INSERT INTO out {shape.query}"
    static = {name: rows for name, rows in tables.items() if f" {name} " in shape.query}
    ours, *hands = in_turns(
        lambda: _ours(app, create, insert, lambda: len(app.table("out")) == ROWS),
        *(lambda f=f: _by_hand(spark, static, shape.query, parquet, folder, f) for f in BY_TRIGGER),
    )
    hand = min(hands, key=lambda t: t.wall)
    peer = "foreachBatch by hand, Parquet"
    what = f"{shape.id}: {shape.what}, by Spark"
    yield Figure("X1", what, ROWS / ours.wall, ROWS / hand.wall, peer)
    yield Figure("X1", f"{what}, CPU", ours.cpu * 1000, hand.cpu * 1000, peer, "ms", f"{ROWS:,} rows")
    yield Figure(
        "X1", f"{what}, with apply and journal", ROWS / (ours.wall + ours.kept), ROWS / hand.wall, peer
    )


def _ours(app: App, create: str, insert: str, is_right: Callable[[], bool]) -> Taken:
    app.sql(create)
    began, cpu = time.perf_counter(), cpu_seconds()
    app.sql(f"{insert} WITH ('engine' = 'spark')")
    app.drain(timeout=600)
    wall, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    assert is_right()
    name = next(q["name"] for q in app.sql("SHOW QUERIES").rows() if q["name"].startswith("insert_out"))
    told = app.sql(f"EXPLAIN ANALYZE FORMAT JSON QUERY {name}").rows()[0]
    steps = json.loads(next(iter(told.values())))["steps"]
    kept = sum(s["ms"] for s in steps if s["step"] == "write the journal" or s["step"].startswith("apply to"))
    app.sql("DROP TABLE out CASCADE")
    return Taken(wall - kept / 1000, cpu, kept / 1000)


def _by_hand(
    spark: SparkSession, static: Mapping[str, pa.Table], text: str, parquet: Path, folder: Path, files: int
) -> Taken:
    kept: list[pa.Table] = []
    ready: list[bool] = []

    def each(batch: DataFrame, _: int) -> None:
        session = batch.sparkSession
        if not ready:
            for name, rows in static.items():
                session.createDataFrame(rows).cache().createOrReplaceTempView(name)
            ready.append(True)
        batch.createOrReplaceTempView("trades")
        kept.append(session.sql(text).toArrow())

    return _streamed(spark, parquet, folder, files, each, lambda: sum(t.num_rows for t in kept) >= ROWS)


def _streamed(
    spark: SparkSession,
    parquet: Path,
    folder: Path,
    files: int,
    each: Callable[[DataFrame, int], None],
    is_done: Callable[[], bool],
    shape: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> Taken:
    """Runs a query by hand over the Parquet files."""
    checkpoint = folder / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    schema = session.read.parquet(str(parquet)).schema
    began, cpu = time.perf_counter(), cpu_seconds()
    stream = session.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(str(parquet))
    writer = shape(stream).writeStream.outputMode("update").foreachBatch(each)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    while not is_done():
        time.sleep(0.005)
        if not query.isActive:
            raise RuntimeError(str(query.exception()))
    taken = Taken(time.perf_counter() - began, cpu_seconds() - cpu)
    query.stop()
    return taken


def _aggregate(app: App, spark: SparkSession, groups: int, parquet: Path, folder: Path) -> Iterator[Figure]:
    query = f"SELECT account % {groups} AS g, COUNT(*) AS n, SUM(price) AS total FROM trades GROUP BY g"

    def is_right() -> bool:
        n, rows = app.sql("SELECT COUNT(*), SUM(n) FROM out").rows()[0].values()
        return bool((n, rows) == (groups, ROWS))

    jobs = Jobs(spark)
    _aggregate_ours(app, query, is_right)
    size = sum(s.result for s in jobs.stages)
    state: dict[str, Any] = {}

    def merge(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("trades")
        found = batch.sparkSession.sql(query).toArrow().cast(_STATE)
        every = found if "rows" not in state else pa.concat_tables([state["rows"], found])
        summed = every.group_by("g").aggregate([("n", "sum"), ("total", "sum")])
        state["rows"] = summed.rename_columns(_STATE.names)

    def is_merged() -> bool:
        return "rows" in state and sum(state["rows"]["n"].to_pylist()) >= ROWS

    def by_hand(files: int) -> Taken:
        state.clear()
        return _streamed(spark, parquet, folder, files, merge, is_merged)

    def keep(batch: DataFrame, _: int) -> None:
        rows = batch.toArrow()
        state.update(zip(rows["g"].to_pylist(), rows["n"].to_pylist(), strict=True))

    def stateful(files: int) -> Taken:
        state.clear()
        return _streamed(
            spark,
            parquet,
            folder,
            files,
            keep,
            lambda: sum(list(state.values())) >= ROWS,
            lambda frame: (
                frame.selectExpr(f"account % {groups} AS g", "price")
                .groupBy("g")
                .agg({"*": "count", "price": "sum"})
                .toDF("g", "n", "total")
            ),
        )

    what = f"live aggregate, {groups:,} groups, by Spark"
    for peer, hand in (("foreachBatch by hand", by_hand), ("Spark's own aggregate", stateful)):
        ours, *others = in_turns(
            lambda: _aggregate_ours(app, query, is_right), *(lambda f=f, h=hand: h(f) for f in BY_TRIGGER)
        )
        taken = min(others, key=lambda t: t.wall)
        yield Figure("X2", what, ROWS / (ours.wall + ours.kept), ROWS / taken.wall, peer)
        yield Figure("X2", f"{what}, CPU", ours.cpu * 1000, taken.cpu * 1000, peer, "ms", f"{ROWS:,} rows")
    yield Figure("X5", what, size * 1_000_000 / ROWS, 1e6, "reach", "bytes to the driver", "1,000,000 rows")


def _aggregate_ours(app: App, query: str, is_right: Callable[[], bool]) -> Taken:
    began, cpu = time.perf_counter(), cpu_seconds()
    app.sql(f"CREATE TABLE out WITH ('engine' = 'spark') AS {query}")
    app.drain(timeout=600)
    taken = Taken(time.perf_counter() - began, cpu_seconds() - cpu)
    assert is_right()
    app.sql("DROP TABLE out CASCADE")
    return taken
