"""F10: the memory of rows of repeated strings, measured as what a process grows by.

The peer is a dict of the dicts that ``json.loads`` makes, as a program that keeps such rows has them: every record
has strings of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure

_TEXT = json.dumps(
    {"id": 0, "country": "Switzerland", "tier": "GOLD CUSTOMER", "city": "Zürich", "status": "active"}
)


def run(rows: int) -> Iterator[Figure]:
    table, plain = (_grown(kind, rows) for kind in ("table", "dicts"))
    # A rate is rows for each megabyte here: more is better.
    megabyte = 1 << 20
    what = f"memory of {rows:,} rows of repeated strings"
    yield Figure(
        "F10", what, rows * megabyte / table, rows * megabyte / plain, "Python rows", "rows", per="MB"
    )


def _grown(kind: str, rows: int) -> int:
    code = f"from bench.tables.memory import measure; print(measure({kind!r}, {rows}))"
    root = Path(__file__).parents[2]
    found = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    return int(found.stdout)


def measure(kind: str, rows: int) -> int:
    """By how many bytes this process grows when it holds the rows. Loading goes by parts, as from a file."""
    build = _Table if kind == "table" else _Dicts
    build().add(0, 1_000)
    kept = build()
    before = _resident()
    for start in range(0, rows, 10_000):
        kept.add(start, min(rows, start + 10_000))
    return _resident() - before


def _records(start: int, end: int) -> list[dict[str, Any]]:
    records = [json.loads(_TEXT) for _ in range(start, end)]
    for i, record in enumerate(records, start):
        record["id"] = i
    return records


class _Dicts:
    def __init__(self) -> None:
        self.rows: dict[int, Any] = {}

    def add(self, start: int, end: int) -> None:
        self.rows.update((r["id"], r) for r in _records(start, end))


class _Table:
    def __init__(self) -> None:
        from millpond import Table

        columns = "id BIGINT PRIMARY KEY, country STRING, tier STRING, city STRING, status STRING"
        self.add_rows: Callable[[Any], int] = Table(columns).bulk_insert

    def add(self, start: int, end: int) -> None:
        self.add_rows(_records(start, end))


def _resident() -> int:
    """The memory that is this process's now."""
    import gc

    gc.collect()
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell a process's memory")
