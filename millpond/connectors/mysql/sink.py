"""Writes rows to a table of MySQL or MariaDB: by INSERT, many rows in a statement, or as upserts."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from millpond.changes import Changes
from millpond.connectors.databases.server_sink import ServerSink
from millpond.connectors.databases.server_table import ServerTable
from millpond.connectors.databases.sql_transactions import SqlWriting
from millpond.connectors.mysql.table import MysqlTable
from millpond.connectors.mysql.table_catalog import check_engine, described
from millpond.connectors.mysql.table_types import holds
from millpond.types import Column


class AppendedTable(MysqlTable):
    """Represents a table to which rows are added; it needs no key."""

    @property
    def identity(self) -> tuple[str, ...]:
        return ()

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.schema.columns

    def create_or_check(self, writing: SqlWriting) -> None:
        there = described(writing.session, self.parts)
        self._hashed, self._careful, self._loose, self._young = False, False, set(), {}
        self.made = not there.columns
        self.stored = {c.name: self.name_there(c.name) for c in self.columns}
        if self.made:
            self.create(writing.session, "")
        else:
            check_engine(self, there)
            self.check_columns([(c.name, c.type) for c in there.columns], holds)

    def change(self, session: Any, changes: Changes) -> None:
        self.put(session, changes.put)

    def put(self, session: Any, rows: pa.Table) -> None:
        self.insert(session, rows)


class MysqlSink(ServerSink):
    """Writes to a table of a MySQL or MariaDB database."""

    kind: ClassVar[str] = "mysql"
    schemes: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")

    @property
    def tables(self) -> type[ServerTable]:
        return MysqlTable if self.columns.key else AppendedTable
