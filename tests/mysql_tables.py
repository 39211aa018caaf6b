"""Tables of a MariaDB server as sources, without an app."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors.cdc.log import Log
from millpond.connectors.mysql.source import MysqlSource
from millpond.types import Schema
from tests import logs
from tests.logs import Found, log_of, values_of
from tests.servers import MariaDb


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
    values = values_of(MysqlSource, table, options)
    return MysqlSource(server.url(database, user, password), values, declared)


def table_of(read: MysqlSource) -> pa.Table:
    """All rows that are there now."""
    try:
        end = read.latest(None)
        batches = [b for split in read.splits(None, end) for b in read.read(split)]
        return pa.Table.from_batches(batches, batches[0].schema).drop_columns(["_seq"])
    finally:
        read.close()


def following(
    server: MariaDb, database: str, table: str = "t", **options: str
) -> AbstractContextManager[Log]:
    return log_of(source(server, database, table, **options))


def changes(log: Log, start: Offset, end: Offset) -> Found:
    """As of any log; its rows are always whole."""
    found = logs.changes(log, start, end)
    assert not any("kept" in row for _, row in found)
    return found


def next_changes(log: Log, start: Offset, rows: int = 1000) -> tuple[Offset, Found]:
    end = log.latest(start, rows)
    return end, changes(log, start, end)
