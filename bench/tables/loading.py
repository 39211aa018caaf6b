"""F2 and F4: records in and out in bulk."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.tables.measure import Work, best_rates
from bench.tables.peers import dict_of, duckdb_of, polars_of, records, sqlite_of, table_of
from millpond import Table

_ROOT = Path(__file__).resolve().parent.parent.parent


def run(rows: int) -> Iterator[Figure]:
    data = records(rows)
    arrow = table_of(data).to_arrow().combine_chunks()

    def load(make: Callable[[Any], Any], given: Any) -> Work:
        def work() -> int:
            make(given)
            return rows

        return work

    works = [load(table_of, data), load(dict_of, data), load(sqlite_of, data)]
    ours, plain, sqlite = best_rates(works, rounds=4, seconds=6)
    yield Figure("F2", f"bulk_insert of {rows:,} dicts", ours, plain, "a dict of dicts")
    yield Figure("F2", f"bulk_insert of {rows:,} dicts", ours, sqlite, "SQLite executemany")
    first = max(_first_rate(rows) for _ in range(3))
    yield Figure("F2", f"bulk_insert of {rows:,} dicts, the first of a process", first, ours, "a later one")
    works = [load(table_of, arrow), load(duckdb_of, arrow), load(polars_of, arrow)]
    ours, duck, polars = best_rates(works, rounds=4, seconds=6)
    yield Figure("F2", f"bulk_insert of {rows:,} rows of Arrow", ours, duck, "DuckDB with a primary key")
    yield Figure("F2", f"bulk_insert of {rows:,} rows of Arrow", ours, polars, "Polars, no index")
    table, kept = table_of(arrow), dict_of(data)
    connection, frame = duckdb_of(arrow), polars_of(arrow)

    def as_records() -> int:
        return sum(1 for _ in _fresh(table).stream_all())

    def as_batches() -> int:
        return sum(batch.num_rows for batch in _fresh(table).stream_all(arrow=True))

    def copied() -> int:
        return sum(1 for _ in map(dict.copy, kept.values()))

    def from_polars() -> int:
        return sum(1 for _ in frame.iter_rows(named=True))

    def from_duckdb() -> int:
        connection.execute("SELECT * FROM t")
        reader: Any = connection.to_arrow_reader(65_536)
        return sum(batch.num_rows for batch in reader)

    ours, plain, polars = best_rates([as_records, copied, from_polars], seconds=5)
    yield Figure("F4", f"stream_all of {rows:,} records", ours, plain, "copies from a dict of dicts")
    yield Figure("F4", f"stream_all of {rows:,} records", ours, polars, "Polars iter_rows")
    ours, duck = best_rates([as_batches, from_duckdb], seconds=5)
    yield Figure("F4", f"stream_all of {rows:,} rows as Arrow", ours, duck, "DuckDB as Arrow batches")


_FIRST = """
import time
from bench.tables.peers import records, table_of
data = records({rows})
began = time.perf_counter()
table_of(data)
print(time.perf_counter() - began)
"""


def _first_rate(rows: int) -> float:
    """Rows per second of the first insert of a process."""
    command = [sys.executable, "-c", _FIRST.format(rows=rows)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True)
    return rows / float(done.stdout)


def _fresh(table: Table) -> Table:
    """The table after a change, so that nothing that an earlier stream left can be handed out again."""
    table.insert({"id": -1, "qty": int(time.time()) % 1_000, "name": "", "tier": "", "price": 0.0})
    return table
