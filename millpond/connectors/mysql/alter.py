"""Says how the columns of tables change in MySQL and MariaDB."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.connectors.databases.alter import Altering
from millpond.connectors.databases.sql_table import SqlTable
from millpond.connectors.mysql.table_catalog import described
from millpond.types import Column


class MysqlAltering(Altering):
    """Changes tables of a MySQL database."""

    def columns_there(self, table: Any, session: Any) -> list[str]:
        return [c.name for c in described(session, table.parts).columns]

    def adding(self, table: SqlTable, column: Column) -> str:
        name = table.quoted([column.name])[0]
        check = f" CHECK (json_valid({name}))" if pa.types.is_nested(column.type) else ""
        return super().adding(table, column) + check

    def retyping(self, table: SqlTable, column: Column) -> list[str]:
        return [f"MODIFY {table.definition(column)}"]
