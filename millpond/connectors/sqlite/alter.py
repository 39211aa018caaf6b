"""Says how the columns of tables change in SQLite."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.connectors.databases.alter import Altering
from millpond.connectors.databases.sql_table import SqlTable, quoted
from millpond.errors import NotSupported
from millpond.types import Column, type_name


class SqliteAltering(Altering):
    """Changes tables of a SQLite file."""

    def columns_there(self, table: SqlTable, session: Any) -> list[str]:
        return [str(row[1]) for row in session.query(f"PRAGMA table_info({table.table})")]

    def drop_indexes(self, table: SqlTable, session: Any, column: str) -> None:
        # Also those of earlier runs: SQLite does not drop a column that has one.
        for _, name, *_ in session.query(f"PRAGMA index_list({table.table})"):
            columns = [str(row[2]) for row in session.query(f"PRAGMA index_info({quoted(name)})")]
            if str(name).startswith("millpond ") and table.stored[column] in columns:
                session.execute(f"DROP INDEX {quoted(name)}")

    def check_retype(self, table: SqlTable, column: Column, dtype: pa.DataType) -> None:
        t = pa.types
        if not any(is_kind(column.type) and is_kind(dtype) for is_kind in (t.is_integer, t.is_floating)):
            raise NotSupported(
                f'column "{column.name}" of {table.what} is stored otherwise as {type_name(dtype)}',
                hint="in SQLite integers become wider integers, and FLOAT becomes DOUBLE",
            )

    def retyping(self, table: SqlTable, column: Column) -> list[str]:
        return []  # SQLite stores both alike
