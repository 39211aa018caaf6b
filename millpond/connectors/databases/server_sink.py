"""Implements sinks that write to databases on servers, through the tables that such databases have here."""

from __future__ import annotations

import json
import uuid
from abc import abstractmethod
from contextlib import suppress
from typing import Any

import pyarrow as pa

from millpond import faults
from millpond.changes import Position
from millpond.connectors.databases.rows_sink import TableSink, changes_of, taken_over
from millpond.connectors.databases.server_table import ServerTable, database_at
from millpond.connectors.databases.sql_transactions import SqlWriting
from millpond.connectors.table import leave
from millpond.errors import ConfigurationIssue


class _Undone(Exception):
    """Ends a transaction that only tries whether rows can be written."""


class ServerSink(TableSink[ServerTable]):
    """Writes rows, and the position of the query in the table ``millpond_positions``, in one transaction."""

    @property
    def _pipeline(self) -> str:
        return f"sink {self._name}"

    @property
    @abstractmethod
    def tables(self) -> type[ServerTable]:
        """Returns what writes: a table with a key, or one that appends."""

    def open(self, name: str) -> Position | None:
        self.close()
        self._write_for(name)
        self._table = self.tables.open(
            self.table, self.columns, {**self._database_options, "table": self.table}
        )
        found = self._table.database.write(self._take_over) if self.exact else None
        self._is_open = True
        return found

    @property
    def _database_options(self) -> dict[str, Any]:
        """Returns the database, as tables have it in their options."""
        return {"url": self.url, **{n: self.values[n] for n in ("connect.timeout", "retry.timeout")}}

    def _take_over(self, writing: SqlWriting) -> Position | None:
        """Makes this the owner of the position: one that was opened before writes nothing more. If it was the owner
        before, no other process may have become it since.
        """
        assert self._table is not None
        self._table.database.bound_waits(writing.session)
        known = self._known(writing)
        if self._owner and known is not None and known.offsets["sink"]["owner"] != self._owner:
            raise self._taken_over()
        self._owner = self._owner or uuid.uuid4().hex
        at = known.offsets["sink"]["position"] if known is not None else None
        self._note(writing, known.batch if known is not None else -1, at)
        return None if at is None else Position(*at)

    def _known(self, writing: SqlWriting) -> Position | None:
        assert self._table is not None
        return self._table.database.known_position(writing.session, self._pipeline)

    def _note(self, writing: SqlWriting, batch: int, at: list[Any] | None) -> None:
        """Stores the position of the query, and who has opened the sink."""
        assert self._table is not None
        noted = {"sink": {"position": at, "owner": self._owner}}
        rest = self._table.database.updating(["pipeline"], ["checkpoint", "batch", "offsets"])
        writing.session.execute(
            f"INSERT INTO millpond_positions VALUES (%s, %s, %s, %s) {rest}",
            (self._pipeline, "", batch, json.dumps(noted)),
        )

    def check(self, rows: pa.Table) -> None:
        """Writes them in a transaction that is undone: the database has conditions of its own."""
        table = self._opened()
        changes = table.check(changes_of(rows))

        def work(writing: SqlWriting) -> None:
            table.database.bound_waits(writing.session)
            writing.apply(table, changes)
            table.database.check_deferred(writing.session)
            raise _Undone

        if len(changes):
            with suppress(_Undone):
                table.database.write(work)

    def write(self, rows: pa.Table, position: Position | None) -> None:
        table = self._opened()
        changes = table.check(changes_of(rows))

        def work(writing: SqlWriting) -> None:
            faults.reach("sink: begun")
            table.database.bound_waits(writing.session)
            if self.exact:
                self._advance(writing, position)
            if len(changes):
                writing.apply(table, changes)
                table.database.check_deferred(writing.session)
            faults.reach("sink: positioned")

        self._is_open = False
        table.database.write(work)
        self._is_open = True

    def _advance(self, writing: SqlWriting, position: Position | None) -> None:
        known = self._known(writing)
        if known is None or known.offsets["sink"]["owner"] != self._owner:
            raise self._taken_over()
        if position is not None:
            self._note(writing, position.batch, position.parts)

    def _taken_over(self) -> ConfigurationIssue:
        self._owner = None  # whoever tries it after this error wants to take over
        return taken_over(self.table)

    def forget(self, name: str) -> None:
        """Removes the position. The table is not touched: it may be gone, or have other columns now."""
        if not self.exact:
            return
        self.close()
        self._owner = None
        database = database_at(self.tables, self.table, self._database_options)
        try:
            database.forget(f"sink {name}")
        finally:
            leave(database)
