"""Logs of changes of databases, read without an app."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors.cdc.database import HostedDatabase
from millpond.connectors.cdc.log import ADDED, EMPTIED, ENDED, KEPT, MOVED, OP, PUT, Log
from millpond.connectors.cdc.source import CapturingSource
from millpond.options import read_options, settings_of

WORDS = {PUT: "put", ADDED: "put", ENDED: "ended", MOVED: "moved", EMPTIED: "emptied"}
Found = list[tuple[str, Mapping[str, Any]]]


def values_of(kind: type[CapturingSource], table: str | None, options: Mapping[str, str]) -> dict[str, Any]:
    """The values of options, whose names have underscores for dots."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    if table is not None:
        given["table"] = table
    return read_options("the test", kind.options, settings_of(given))


@contextmanager
def log_of(read: CapturingSource, owner: str = "a test") -> Iterator[Log]:
    """The log of a table; what it made in the database goes at the end."""
    assert isinstance(read.database, HostedDatabase)
    log = read.database.log(owner, read.schema())
    try:
        yield log
    finally:
        log.drop()
        log.close()
        read.close()


def changes(log: Log, start: Offset, end: Offset) -> Found:
    """What the log has between two places: what each row does, and the row, with the names of the columns that it
    leaves out under ``kept``."""
    found = []
    for batch in log.read(start, end):
        assert isinstance(batch, pa.RecordBatch)
        batch.validate(full=True)
        for row in batch.to_pylist():
            op, kept = row.pop(OP), row.pop(KEPT)
            found.append((WORDS[op], row | ({"kept": [log.schema.names[i] for i in kept]} if kept else {})))
    return found


def next_changes(log: Log, start: Offset, rows: int = 1000) -> tuple[Offset, Found]:
    end = log.latest(start, rows)
    return end, changes(log, start, end)
