"""Writes rows to a table of any database that SQLAlchemy supports: ``sql://`` before its URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from millpond.changes import Position
from millpond.connectors.databases.rows_sink import ROWS_OPTIONS, TableSink
from millpond.connectors.databases.uri import query_without, split_query
from millpond.errors import InvalidOption
from millpond.options import Option
from millpond.packages import needed

if TYPE_CHECKING:
    from millpond.connectors.sql.written_table import WrittenTable  # noqa: F401  (named as text in the base)


class AnySqlSink(TableSink["WrittenTable"]):
    """Writes through SQLAlchemy."""

    kind: ClassVar[str] = "sql"
    schemes: ClassVar[tuple[str, ...]] = ("sql",)
    options: ClassVar[tuple[Option, ...]] = tuple(
        o for o in ROWS_OPTIONS if o.name not in ("connect.timeout", "retry.timeout")
    )

    @classmethod
    def target(cls, uri: str, values: Mapping[str, Any]) -> tuple[str, str]:
        if not values["table"]:
            raise InvalidOption(
                f'"{uri}" names no table', hint="sql://dialect://host/database?table=…, or 'table' = '…'"
            )
        before, _ = split_query(uri)
        return before.partition("://")[2] + query_without(uri, cls.options), str(values["table"])

    def open(self, name: str) -> Position | None:
        needed("sqlalchemy", "sql:// sinks", "sql")
        from millpond.connectors.sql.written_table import WrittenTable

        self.close()
        self._write_for(name)
        self._table = WrittenTable(self.url, self.table, self.columns)
        with self._whoever_tries_again_takes_over():
            found = self._table.take_over(f"sink {name}" if self.exact else None, self._owner)
        self._owner, self._is_open = self._table.owner, True
        return found

    def check(self, rows: pa.Table) -> None:
        self._opened().write(rows, None, undo=True)

    def write(self, rows: pa.Table, position: Position | None) -> None:
        with self._writing() as table:
            table.write(rows, position)

    def forget(self, name: str) -> None:
        if not self.exact:
            return
        from millpond.connectors.sql import written_table

        self.close()
        self._owner = None
        written_table.forget(self.url, self.table, f"sink {name}")
