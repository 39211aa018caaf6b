"""Writes rows to a table of PostgreSQL: by COPY, or by COPY and one upsert."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from millpond.changes import Changes
from millpond.connectors.databases.server_sink import ServerSink
from millpond.connectors.databases.server_table import ServerTable
from millpond.connectors.databases.sql_transactions import SqlWriting
from millpond.connectors.databases.texts import to_texts
from millpond.connectors.postgresql.table import PostgresTable, csv_of
from millpond.types import Column


class AppendedTable(PostgresTable):
    """Represents a table to which rows are added; it needs no key."""

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.schema.columns

    def create_or_check(self, writing: SqlWriting) -> None:
        self.made = not self.check_there(writing.session)
        if self.made:
            writing.session.execute(f"CREATE TABLE {self.table} ({', '.join(self.definitions())})")

    def change(self, session: Any, changes: Changes) -> None:
        self.put(session, changes.put)

    def put(self, session: Any, rows: pa.Table) -> None:
        columns = [self.column(name) for name in rows.column_names]
        names = ", ".join(self.quoted(rows.column_names))
        # COPY has no parameters, and uses its text as it is.
        plain = f"COPY {self.table} ({names}) FROM STDIN (FORMAT csv)".replace("%%", "%")
        session.copy_in(plain, csv_of([to_texts(rows.column(c.name), c.type) for c in columns]))


class PostgresSink(ServerSink):
    """Writes to a table of a PostgreSQL database."""

    kind: ClassVar[str] = "postgresql"
    schemes: ClassVar[tuple[str, ...]] = ("postgresql", "postgres")

    @property
    def tables(self) -> type[ServerTable]:
        return PostgresTable if self.columns.key else AppendedTable
