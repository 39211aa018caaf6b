"""Loading files: 1,000,000 rows of CSV, JSON lines and Parquet into a table, beside DuckDB, Polars and plain Spark on
the same files, and the memory that a file of 2 GB takes on its way into an aggregate and into a table of SQLite."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import polars

from bench.figure import Figure
from millpond import App
from millpond.engine.session import get_session
from millpond.engine_rule import Engine

ROWS = 1_000_000
SMALL, LARGE = 200 << 20, 2 << 30
"""Bytes of the two files whose memory is compared."""

_LOAD = {
    "an aggregate": "CREATE TABLE t AS SELECT k, COUNT(*) AS n, SUM(v) AS s FROM 'file://{path}' GROUP BY k",
    "a table of SQLite": "CREATE TABLE t WITH ('extension' = 'sqlite') AS SELECT * FROM 'file://{path}'",
}

_PROGRAM = """
import re, sys
from pathlib import Path
from millpond import App
with App(engine="process") as app:
    app.sql(sys.argv[1])
# The most that this program had; ru_maxrss would begin with what its parent has.
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10)
"""


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        files = {"CSV": home / "rows.csv", "JSON lines": home / "rows.jsonl"}
        with files["CSV"].open("w") as csv, files["JSON lines"].open("w") as lines:
            csv.write("id,k,v,name\n")
            for i in range(ROWS):
                csv.write(f"{i},{i % 1000},{i * 0.5},name of number {i % 5000}\n")
                lines.write(
                    f'{{"id": {i}, "k": {i % 1000}, "v": {i * 0.5}, "name": "name of number {i % 5000}"}}\n'
                )
        files["Parquet"] = home / "rows.parquet"
        polars.read_csv(files["CSV"]).write_parquet(files["Parquet"], row_group_size=131_072)
        for kind, path in files.items():
            here, there = _rate(path, "process"), _rate(path, "spark")
            for name, peer in _peers(kind, path).items():
                rate = max(ROWS / _seconds(peer) for _ in range(2))
                yield Figure("S2", f"load {ROWS:,} rows of {kind}", here, rate, name)
                if name.startswith("Spark"):
                    yield Figure("S2", f"load {ROWS:,} rows of {kind}, by Spark", there, rate, name)
        yield from _memory(home)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _rate(path: Path, engine: Engine) -> float:
    return max(ROWS / _seconds(lambda: _ours(path, engine)) for _ in range(2))


def _ours(path: Path, engine: Engine) -> None:
    with App(engine=engine) as app:
        app.sql(f"CREATE TABLE t AS SELECT * FROM 'file://{path}'")
        assert len(app.table("t")) == ROWS


def _peers(kind: str, path: Path) -> dict[str, Callable[[], object]]:
    spark = get_session()
    if kind == "CSV":
        return {
            "DuckDB table": lambda: duckdb.connect().execute(
                f"CREATE TABLE t AS SELECT * FROM read_csv('{path}')"
            ),
            "Polars": lambda: polars.read_csv(path),
            "Spark to Arrow": lambda: spark.read.csv(str(path), header=True, inferSchema=True).toArrow(),
        }
    if kind == "Parquet":
        return {
            "DuckDB table": lambda: duckdb.connect().execute(
                f"CREATE TABLE t AS SELECT * FROM read_parquet('{path}')"
            ),
            "Polars": lambda: polars.read_parquet(path),
            "Spark to Arrow": lambda: spark.read.parquet(str(path)).toArrow(),
        }
    return {
        "DuckDB table": lambda: duckdb.connect().execute(
            f"CREATE TABLE t AS SELECT * FROM read_json('{path}')"
        ),
        "Polars": lambda: polars.read_ndjson(path),
        "Spark to Arrow": lambda: spark.read.json(str(path)).toArrow(),
    }


def _memory(home: Path) -> Iterator[Figure]:
    """Megabytes at the most, of a process for each file and target."""
    paths = {}
    for size in (SMALL, LARGE):
        paths[size] = home / f"large{size}.csv"
        with paths[size].open("w") as file:
            written, first = file.write("id,k,v,name\n"), 0
            while written < size:
                block = [
                    f"{i},{i % 1000},{i * 0.5},name of number {i % 5000}\n"
                    for i in range(first, first + 50_000)
                ]
                written += file.write("".join(block))
                first += len(block)
    for what, sql in _LOAD.items():
        small, large = (
            int(subprocess.check_output([sys.executable, "-c", _PROGRAM, sql.format(path=paths[s])]))
            for s in (SMALL, LARGE)
        )
        name = f"the same with {SMALL >> 20} MB"
        yield Figure(
            "S2", f"memory for {LARGE >> 30} GB of CSV into {what}", large, small, name, "MB", "peak"
        )
