"""Tables of a MariaDB server as sources, without an app."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from millpond.changes import Offset
from millpond.options import read_options, settings_of
from millpond.sources._captured import ADDED, EMPTIED, ENDED, KEPT, MOVED, OP, PUT, Log
from millpond.sources.mysql import MysqlSource
from millpond.types import Schema
from tests.servers import MariaDb

WORDS = {PUT: "put", ADDED: "put", ENDED: "ended", MOVED: "moved", EMPTIED: "emptied"}


def source(
    server: MariaDb,
    database: str,
    table: str | None = None,
    *,
    user: str = "millpond",
    password: str = "pond",
    declared: Schema | None = None,
    **options: str,
) -> MysqlSource:
    """Options have underscores for dots."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    if table is not None:
        given["table"] = table
    values = read_options("the test", MysqlSource.options, settings_of(given))
    return MysqlSource(server.url(database, user, password), values, declared)


def table_of(read: MysqlSource) -> pa.Table:
    """All rows that are there now."""
    try:
        end = read.latest(None)
        batches = [b for split in read.splits(None, end) for b in read.read(split)]
        return pa.Table.from_batches(batches, batches[0].schema).drop_columns(["_seq"])
    finally:
        read.close()


@contextmanager
def following(server: MariaDb, database: str, table: str = "t", **options: str) -> Iterator[Log]:
    read = source(server, database, table, **options)
    log = read.database.log("a test", read.schema())
    try:
        yield log
    finally:
        log.drop()
        log.close()
        read.close()


def changes(log: Log, start: Offset, end: Offset) -> list[tuple[str, Mapping[str, Any]]]:
    """What the log has between two places: what each row does, and the row."""
    found = []
    for batch in log.read(start, end):
        batch.validate(full=True)
        for row in batch.to_pylist():
            op = row.pop(OP)
            assert row.pop(KEPT) is None
            found.append((WORDS[op], row))
    return found


def next_changes(
    log: Log, start: Offset, rows: int = 1000
) -> tuple[Offset, list[tuple[str, Mapping[str, Any]]]]:
    end = log.latest(start, rows)
    return end, changes(log, start, end)
