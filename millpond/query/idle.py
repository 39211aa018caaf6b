"""Caches DuckDB connections, with the tables of their last query, for the next query of the same rows.

Registering a table takes longer than querying a small one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

_CONNECTIONS = 8
_BYTES = 1_000_000
"""Maximum memory of the tables of one connection, whatever else refers to them."""


@dataclass(slots=True, eq=False)
class Connection:
    """Represents a connection to a database, and the tables registered on it by name."""

    root: duckdb.DuckDBPyConnection
    cursor: duckdb.DuckDBPyConnection
    tables: dict[str, pa.Table] = field(default_factory=dict)

    def knows(self, tables: Mapping[str, pa.Table]) -> bool:
        """Returns whether each name means exactly this table."""
        return all(self.tables.get(name) is table for name, table in tables.items())

    def register(self, tables: Mapping[str, pa.Table]) -> None:
        """Registers the tables that are not registered."""
        for name, table in tables.items():
            if self.tables.get(name) is not table:
                self.cursor.register(name, table)
                self.tables[name] = table


class IdleConnections:
    """Stores idle connections. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Connection] = []

    def take(self, root: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table]) -> Connection | None:
        """Returns a connection to the database that has the tables; nobody else gets it until it is put back."""
        with self._lock:
            for at, connection in enumerate(self._idle):
                if connection.root is root and connection.knows(tables):
                    return self._idle.pop(at)
        return None

    def put(self, connection: Connection) -> None:
        """Stores a connection whose query has succeeded, or closes it if its tables are not small."""
        if not connection.tables or not _are_small(connection.tables):
            connection.cursor.close()
            return
        with self._lock:
            self._idle.append(connection)
            oldest = self._idle.pop(0) if len(self._idle) > _CONNECTIONS else None
        if oldest is not None:
            oldest.cursor.close()

    def clear(self) -> None:
        """Closes them all."""
        with self._lock:
            some, self._idle = self._idle, []
        for connection in some:
            connection.cursor.close()


def _are_small(tables: Mapping[str, pa.Table]) -> bool:
    """Returns whether they are tables, and not readers of rows that are gone now, of a few bytes."""
    return (
        all(isinstance(table, pa.Table) for table in tables.values())
        and sum(table.get_total_buffer_size() for table in tables.values()) <= _BYTES
    )
