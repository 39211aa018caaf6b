"""Writes rows to a table of ClickHouse, as Arrow over HTTP. There are no transactions: delivery is at least once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from millpond.changelog import DELETED
from millpond.changes import Changes, Position
from millpond.connectors.clickhouse.source import ClickhouseSource
from millpond.connectors.databases.options import LOGIN_OPTIONS
from millpond.connectors.databases.rows_sink import ROWS_OPTIONS, RowsSink
from millpond.errors import ConnectionLost, NotSupported
from millpond.options import Option
from millpond.packages import needed
from millpond.records.checks import checked
from millpond.types import Schema, type_name, whole

if TYPE_CHECKING:
    from millpond.connectors.databases.client import Database


_VERSION = "_version"
"""The column by which ClickHouse knows the newest row of a key, where rows change."""


class ClickhouseSink(RowsSink):
    """Inserts the rows of a batch with one statement. Rows that change or are deleted are inserted too, with a version
    and ``_deleted``: ClickHouse replaces the older ones.
    """

    kind: ClassVar[str] = "clickhouse"
    schemes: ClassVar[tuple[str, ...]] = ("clickhouse",)
    options: ClassVar[tuple[Option, ...]] = (
        *(o for o in ROWS_OPTIONS if o.name not in ("delivery", "retry.timeout")),
        *LOGIN_OPTIONS,
    )

    def __init__(self, uri: str, values: Mapping[str, Any], schema: Schema):
        super().__init__(uri, values, schema)
        self.url, self.table = self.target(uri, self.values)
        self._database: Database | None = None
        self._changes = DELETED in schema
        self._version = 0

    @classmethod
    def is_exact(cls, values: Mapping[str, Any]) -> bool:
        return False

    @property
    def guarantee(self) -> str:
        again = "at least once: a batch that a crash cuts off is written again"
        if not self.columns.key:
            return again
        return f"{again}; a ReplacingMergeTree, read with FINAL, has one row of each {', '.join(self.columns.key)}"

    def open(self, name: str) -> Position | None:
        needed("clickhouse_connect", "clickhouse:// sinks", "clickhouse")
        self.close()
        login = {o.name for o in LOGIN_OPTIONS} | {"connect.timeout"}
        values = {n: v for n, v in self.values.items() if n in login}
        source = ClickhouseSource(self.url, {**values, "table": self.table}, None)
        database = source.database
        types = [
            f"{_quoted(c.name)} {_type(c.name, c.type, c.name in self.columns.key)}" for c in self.columns
        ]
        key = ", ".join(map(_quoted, self.columns.key))
        engine = f"ReplacingMergeTree ORDER BY ({key})" if key else "MergeTree ORDER BY tuple()"
        if self._changes:
            types += [f"{_VERSION} UInt64", f"{DELETED} UInt8"]
            engine = f"ReplacingMergeTree({_VERSION}, {DELETED}) ORDER BY ({key})"
        with database.connected() as connection:
            client = _client(connection)
            client.command(f"CREATE TABLE IF NOT EXISTS {self._named} ({', '.join(types)}) ENGINE = {engine}")
            if self._changes:
                self._version = int(client.command(f"SELECT max({_VERSION}) FROM {self._named}") or 0)
        self._database = database
        return None

    @property
    def is_open(self) -> bool:
        return self._database is not None

    @property
    def _named(self) -> str:
        return ".".join(_quoted(part) for part in self.table.split(".", 1))

    def check(self, rows: pa.Table) -> None:
        """Checks the key alone: there is no transaction that tries the rest."""
        rows = rows.select(list(self.columns.names))
        checked(self.columns, Changes(rows), what=f'table "{self.table}"', null_keys=False)

    def write(self, rows: pa.Table, position: Position | None) -> None:
        if self._database is None:
            raise ConnectionLost(f'"{self.uri}" is not open')
        self.check(rows)
        if not rows.num_rows:
            return
        if self._changes:  # the row of a key with the highest version counts
            numbers = pa.array(np.arange(rows.num_rows, dtype=np.uint64) + np.uint64(self._version + 1))
            gone = whole(rows.column(DELETED)).fill_null(False).cast(pa.uint8())
            rows = rows.drop_columns([DELETED]).append_column(_VERSION, numbers).append_column(DELETED, gone)
            self._version += rows.num_rows
        out = pa.BufferOutputStream()
        with pa.ipc.new_file(out, rows.schema) as file:
            file.write_table(rows)
        with self._database.connected() as connection:
            _client(connection).raw_insert(
                self._named,
                rows.column_names,
                out.getvalue().to_pybytes(),
                settings={"input_format_null_as_default": "0"},
                fmt="Arrow",
            )

    def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()


def _client(connection: Any) -> Any:
    return connection.connection.driver_connection.client


def _quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _type(name: str, dtype: Any, keyed: bool) -> str:
    """Returns the type of a column in CREATE TABLE."""
    t = pa.types
    plain = {
        pa.bool_(): "Bool",
        pa.int8(): "Int8",
        pa.int16(): "Int16",
        pa.int32(): "Int32",
        pa.int64(): "Int64",
        pa.float32(): "Float32",
        pa.float64(): "Float64",
        pa.string(): "String",
        pa.binary(): "String",
        pa.date32(): "Date32",
    }
    if dtype in plain:
        found = plain[dtype]
    elif t.is_decimal(dtype):
        found = f"Decimal({dtype.precision}, {dtype.scale})"
    elif t.is_timestamp(dtype):
        found = "DateTime64(6, 'UTC')" if dtype.tz else "DateTime64(6)"
    else:
        raise NotSupported(
            f'column "{name}" of type {type_name(dtype)} in a table that the sink creates',
            hint="create the table in ClickHouse before, or write it as text: to_json(…)",
        )
    return found if keyed else f"Nullable({found})"
