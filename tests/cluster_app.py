"""The app that the tests run on a cluster, and the program that runs it: `python -m tests.cluster_app SETTINGS`.

It sends rows in chunks, each when the one before has taken effect, and goes on where an earlier life of it was killed.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond import App, Error
from millpond.engine import cluster_check
from millpond.engine.row_store import FolderStore, HadoopStore
from millpond.engine.session import get_session
from tests.spark_jobs import Jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL = """
CREATE STREAM picks (id BIGINT, sym STRING, qty INT, at TIMESTAMP, tags ARRAY<STRING>, paid DECIMAL(12, 2));
CREATE TABLE syms (sym STRING PRIMARY KEY, name STRING, price DECIMAL(10, 2));
CREATE TABLE joined AS
  SELECT p.id, s.name, p.qty * s.price AS value, p.tags, p.paid FROM picks p LEFT JOIN syms s ON s.sym = p.sym;
CREATE TABLE totals AS SELECT sym, COUNT(*) AS n, SUM(qty) AS qty, MAX(paid) AS paid FROM picks GROUP BY sym;
CREATE TABLE windows AS SELECT sym, COUNT(*) AS n, SUM(qty) AS qty FROM picks GROUP BY sym WINDOW TUMBLING(at, 1h);
CREATE STREAM large AS SELECT id, sym, qty FROM picks WHERE qty > 2;
CREATE TABLE lines AS SELECT id, regexp_extract(sym, '(s)([0-9]+)', 2) AS found FROM large;
"""
TABLES = ("joined", "totals", "windows", "lines")
PAIRS = """
CREATE TABLE pairs AS SELECT p.id, p.paid, l.sym, l.qty FROM picks p JOIN large l ON l.id = p.id;
"""
"""Joined streams, of which one is derived from the other."""
SYMS = 50


def symbols() -> list[dict[str, Any]]:
    return [{"sym": f"s{i}", "name": f"Name {i}", "price": Decimal(i) / 4} for i in range(0, SYMS, 2)]


def chunk(number: int, rows: int) -> pa.Table:
    ids = range(number * rows, (number + 1) * rows)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return pa.table(
        {
            "id": ids,
            "sym": [None if i % 97 == 0 else f"s{i % SYMS}" for i in ids],
            "qty": pa.array([i % 7 for i in ids], pa.int32()),
            "at": pa.array([start + timedelta(seconds=i) for i in ids], pa.timestamp("us", "UTC")),
            "tags": [None if i % 5 == 0 else [f"t{i % 3}", None] for i in ids],
            "paid": pa.array([Decimal(i) / 100 for i in ids], pa.decimal128(12, 2)),
        }
    )


def place(number: int) -> str:
    """Returns where it is called."""
    import millpond

    return f"{os.getpid()} {millpond.__file__}"


def results(app: App, *more: str) -> dict[str, list[str]]:
    return {
        t: sorted(map(repr, app.sql(f"SELECT * FROM {t}").to_arrow().to_pylist())) for t in (*TABLES, *more)
    }


def expected(chunks: int, rows: int, *, pairs: bool = False) -> dict[str, list[str]]:
    """The results of the same app in one process, without Spark."""
    with App(SQL + (PAIRS if pairs else ""), engine="process", _direct=True) as app:
        for record in symbols():
            app.table("syms").insert(record)
        for number in range(chunks):
            app.send("picks", chunk(number, rows))
            app.drain(120)
        return results(app, *(("pairs",) if pairs else ()))


def say(word: str, what: object = None) -> None:
    print(json.dumps([word, what]), flush=True)


def run(master: str, state: str, store: str | None, chunks: int, rows: int) -> None:
    """Sends what was not sent before, and prints what came of all."""
    puts: list[str] = []
    copies: list[str] = []
    kind = HadoopStore if store is not None and ":" in store else FolderStore
    put, copy = kind.put, kind.copy
    kind.put = lambda self, name, rows: (puts.append(name), put(self, name, rows))[1]  # type: ignore[method-assign]
    kind.copy = lambda self, name, files: (copies.append(name), copy(self, name, files))[1]  # type: ignore[method-assign]
    with App(SQL, state=state, master=master, store=store, engine="spark") as app:
        say("open")
        for record in symbols():
            app.table("syms").insert(record)
        sent = app._runtime.journal.stream_end("picks")
        assert sent % rows == 0
        app.drain(300)
        for number in range(sent // rows, chunks):
            app.send("picks", chunk(number, rows))
            say("sent", number)
            app.drain(300)
        say("stored", [len(puts), len([name for name in copies if name not in puts])])
        say("results", results(app))
        say(
            "queries",
            [[q["name"], q["process_rows"], q["spark_rows"]] for q in app.sql("SHOW QUERIES").rows()],
        )


def refused(master: str, folder: str, python: str) -> None:
    """Prints why an app cannot run whose executors have a ``python`` without packages, or do not see its store, and
    where a function of one that can is called.
    """
    cluster_check._PATIENCE = 400.0
    sql = "CREATE STREAM s (n BIGINT); CREATE TABLE t AS SELECT place(n) AS place FROM s;"
    for executable, store in ((python, None), (sys.executable, folder), (sys.executable, None)):
        os.environ["PYSPARK_PYTHON"] = executable
        try:
            with App(sql, master=master, store=store, engine="spark", functions=[place]) as app:
                app.send("s", [{"n": i} for i in range(3)])
                app.drain(300)
                say(
                    "places",
                    [os.getpid(), [r["place"] for r in app.sql("SELECT DISTINCT place FROM t").rows()]],
                )
        except Error as error:
            say("refused", [error.message, error.hint])


def loads(master: str, folders: list[str], store: str) -> None:
    """Prints, for a file in each folder, how many rows a table over it has, and in which processes they were made; and
    how many rows of Parquet Spark's own reader has read.
    """
    with App("", master=master, store=store, engine="spark", functions=[place]) as app:
        for number, folder in enumerate(folders):
            app.sql(f"CREATE TABLE t{number} AS SELECT id, place(id) AS place FROM file://{folder}/ids.csv")
            found = app.sql(f"SELECT place, COUNT(DISTINCT id) AS n FROM t{number} GROUP BY place").rows()
            callers = {int(r["place"].partition(" ")[0]) for r in found}
            say("loaded", [sum(r["n"] for r in found), os.getpid() in callers])
            jobs = Jobs(get_session())
            app.sql(f"CREATE TABLE p{number} AS SELECT id FROM file://{folder}/ids.parquet")
            read = sum(stage.read for stage in jobs.of(f"table:p{number}"))
            say("parquet", [len(app.table(f"p{number}")), read])


def settings_of(spark: SparkSession) -> set[tuple[str, str]]:
    return {*spark.sparkContext.getConf().getAll(), *spark.conf.getAll.items()}


def given(master: str) -> None:
    """Prints the results of an app in a session that somebody else has started, and whether that is as it was."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master(master).config("spark.sql.ansi.enabled", "true").getOrCreate()
    before = settings_of(spark)
    with App(SQL + PAIRS, spark=spark, engine="spark") as app:
        for record in symbols():
            app.table("syms").insert(record)
        app.send("picks", chunk(0, 12_000))
        app.drain(300)
        say("results", results(app, "pairs"))
        queries = [q for q in app.sql("SHOW QUERIES").rows() if q["name"].startswith("table:pairs.")]
        say("pairs", [[q["name"], q["process_rows"], q["spark_rows"] > 0] for q in queries])
    changed = sorted(str(setting) for setting in settings_of(spark) ^ before)
    say("kept", [spark.range(10).count(), changed, len(spark.catalog.listTables())])
    spark.stop()


def write(master: str, state: str, target: str, rows: int) -> None:
    """Writes rows to a topic."""
    sql = f"""
        CREATE STREAM picks (id BIGINT, sym STRING, paid DECIMAL(12, 2));
        INSERT INTO {target} SELECT sym AS _key, id, paid FROM picks WITH ('query.name' = 'out');
    """
    with App(sql, state=state, master=master, engine="spark") as app:
        app.send("picks", chunk(0, rows).select(["id", "sym", "paid"]))
        say("sent", 0)
        app.drain(300)
        say("written", app.sql("SHOW QUERIES").rows()[0]["rows"])


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    programs = {"run": run, "refused": refused, "given": given, "loads": loads, "write": write}
    programs[settings.pop("do")](**settings)
