"""Tables of a PostgreSQL server as sources, without an app."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from millpond.changes import Offset
from millpond.options import read_options, settings_of
from millpond.sources._captured import ADDED, EMPTIED, ENDED, KEPT, MOVED, OP, PUT, Log
from millpond.sources.postgresql import PostgresqlSource
from millpond.types import Schema
from tests.servers import Postgres

WORDS = {PUT: "put", ADDED: "put", ENDED: "ended", MOVED: "moved", EMPTIED: "emptied"}


def source(
    server: Postgres,
    table: str | None = None,
    *,
    user: str = "millpond",
    database: str = "postgres",
    declared: Schema | None = None,
    **options: str,
) -> PostgresqlSource:
    """Options have underscores for dots."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    if table is not None:
        given["table"] = table
    values = read_options("the test", PostgresqlSource.options, settings_of(given))
    uri = f"postgresql://{quote(user)}@127.0.0.1:{server.port}/{database}"
    return PostgresqlSource(uri, values, declared)


def without_slots(server: Postgres) -> Postgres:
    """The server, rid of what apps that were killed have left there."""
    server.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    deadline = time.monotonic() + 30
    while server.execute("SELECT 1 FROM pg_replication_slots"):
        server.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active"
        )
        assert time.monotonic() < deadline
    for (name,) in server.execute("SELECT pubname FROM pg_publication"):
        server.execute(f'DROP PUBLICATION "{name}"')
    return server


def rows(read: PostgresqlSource) -> list[dict[str, Any]]:
    """All rows that are there now."""
    try:
        end = read.latest(None)
        found = [
            r for split in read.splits(None, end) for batch in read.read(split) for r in batch.to_pylist()
        ]
    finally:
        read.close()
    return [{k: v for k, v in row.items() if k != "_seq"} for row in found]


@contextmanager
def following(server: Postgres, table: str, owner: str = "a test", **options: str) -> Iterator[Log]:
    """The log of a table; what it made in the database goes at the end."""
    read = source(server, table, **options)
    log = read.database.log(owner, read.schema())
    try:
        yield log
    finally:
        log.drop()
        log.close()
        read.close()


def changes(log: Log, start: Offset, end: Offset) -> list[tuple[str, Mapping[str, Any]]]:
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


def next_changes(
    log: Log, start: Offset, rows: int = 1000
) -> tuple[Offset, list[tuple[str, Mapping[str, Any]]]]:
    end = log.latest(start, rows)
    return end, changes(log, start, end)
