"""Reads the columns of a table from ``information_schema``, for SQLAlchemy dialects that cannot describe them."""

from __future__ import annotations

import pyarrow as pa
import sqlalchemy as sa
from sqlglot import errors, exp

from millpond.connectors.databases.arrow import cannot_hold, decimal_type
from millpond.connectors.databases.selects import Rows
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema

_T = exp.DataType.Type
_TYPES = {
    _T.BOOLEAN: pa.bool_(),
    _T.TINYINT: pa.int8(),
    _T.SMALLINT: pa.int16(),
    _T.INT: pa.int32(),
    _T.BIGINT: pa.int64(),
    _T.UTINYINT: pa.int16(),
    _T.USMALLINT: pa.int32(),
    _T.UINT: pa.int64(),
    _T.UBIGINT: pa.decimal128(20, 0),
    _T.INT128: pa.decimal128(38, 0),
    _T.FLOAT: pa.float32(),
    _T.DOUBLE: pa.float64(),
    _T.CHAR: pa.string(),
    _T.VARCHAR: pa.string(),
    _T.TEXT: pa.string(),
    _T.UUID: pa.string(),
    _T.JSON: pa.string(),
    _T.TIME: pa.string(),
    _T.ENUM: pa.string(),
    _T.DATE: pa.date32(),
    _T.TIMESTAMP: TIMESTAMP_NTZ,
    _T.DATETIME: TIMESTAMP_NTZ,
    _T.TIMESTAMPNTZ: TIMESTAMP_NTZ,
    _T.TIMESTAMPTZ: TIMESTAMP,
    _T.BLOB: pa.binary(),
    _T.VARBINARY: pa.binary(),
    _T.BINARY: pa.binary(),
    _T.INTERVAL: pa.duration("us"),
}
_COLUMNS = sa.text(
    "SELECT table_schema, column_name, data_type, is_nullable FROM information_schema.columns"
    " WHERE table_name = :name ORDER BY table_schema, ordinal_position"
)
_KEY = sa.text(
    "SELECT k.table_schema, k.column_name FROM information_schema.key_column_usage k"
    " JOIN information_schema.table_constraints c ON k.constraint_name = c.constraint_name"
    " AND k.table_schema = c.table_schema AND k.table_name = c.table_name"
    " WHERE c.constraint_type = 'PRIMARY KEY' AND k.table_name = :name ORDER BY k.ordinal_position"
)


def from_information_schema(connection: sa.Connection, rows: Rows) -> Schema | None:
    """Returns the columns and the key of a table; None if there is no such table."""
    found = connection.execute(_COLUMNS, {"name": rows.table}).fetchall()
    schemas = [schema for schema, *_ in found if rows.schema in (None, schema)]
    if not schemas:
        return None
    columns = tuple(
        Column(name, _arrow(name, kind), nullable == "YES")
        for schema, name, kind, nullable in found
        if schema == schemas[0]
    )
    key = connection.execute(_KEY, {"name": rows.table}).fetchall()
    return Schema(columns, tuple(name for schema, name in key if schema == schemas[0]))


def _arrow(name: str, kind: str) -> pa.DataType:
    try:
        dialect = "duckdb"  # it writes types as the standard does, and nested ones too
        return _type_of(name, exp.DataType.build(kind, dialect=dialect))
    except errors.SqlglotError:
        raise cannot_hold(name, kind) from None


def _type_of(name: str, kind: exp.DataType) -> pa.DataType:
    if kind.this is _T.DECIMAL:
        sizes = [int(p.name) for p in kind.expressions]
        return decimal_type(name, *(sizes + [None, None])[:2])
    if kind.this in (_T.ARRAY, _T.LIST):
        return pa.list_(_type_of(name, kind.expressions[0]))
    if kind.this is _T.STRUCT:
        return pa.struct([pa.field(e.name, _type_of(name, e.args["kind"])) for e in kind.expressions])
    found = _TYPES.get(kind.this)
    if found is None:
        raise cannot_hold(name, kind.sql())
    return found
