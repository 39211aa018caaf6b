"""Tables of a PostgreSQL server as sources, without an app."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import quote

from millpond.connectors.cdc.log import Log
from millpond.connectors.postgresql.source import PostgresqlSource
from millpond.types import Schema
from tests.logs import log_of, values_of
from tests.servers import Postgres


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
    values = values_of(PostgresqlSource, table, options)
    uri = f"postgresql://{quote(user)}@127.0.0.1:{server.port}/{database}"
    return PostgresqlSource(uri, values, declared)


def without_slots(server: Postgres) -> Postgres:
    """The server, rid of what apps that were killed have left there."""
    deadline = time.monotonic() + 30
    while server.execute("SELECT 1 FROM pg_replication_slots"):
        server.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
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


def following(
    server: Postgres, table: str, owner: str = "a test", **options: str
) -> AbstractContextManager[Log]:
    return log_of(source(server, table, **options), owner)
