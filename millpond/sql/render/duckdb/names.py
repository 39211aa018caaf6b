"""Writes types, identifiers and literals in DuckDB's SQL."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import pyarrow as pa

from millpond.types import TIMESTAMP, TIMESTAMP_NTZ


class Unrenderable(Exception):
    """Signals that DuckDB has no way, known to this package, to return Spark's result; the reason says for what."""


NOW = "millpond_now"
"""The variable in which the caller of a query sets the time."""
UPPER, LOWER, TITLE = "millpond_upper", "millpond_lower", "millpond_title"
DAYS, MICROS = "millpond_days", "millpond_micros"
"""Python functions, for texts that DuckDB reads or writes differently from Spark."""
_NAMES: dict[pa.DataType, str] = {
    pa.null(): '"NULL"',
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMPTZ",
    TIMESTAMP_NTZ: "TIMESTAMP",
    pa.duration("us"): "INTERVAL",
}


def quoted(name: str) -> str:
    """Returns an identifier, quoted."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Returns a string literal."""
    if "\0" in value:
        raise Unrenderable("a string with a zero character")
    return "'" + value.replace("'", "''") + "'"


def duck(dtype: pa.DataType) -> str:
    """Returns the DuckDB name of a type."""
    if dtype in _NAMES:
        return _NAMES[dtype]
    if pa.types.is_decimal128(dtype):
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    if pa.types.is_list(dtype):
        return f"{duck(dtype.value_type)}[]"
    if pa.types.is_map(dtype):
        return f"MAP({duck(dtype.key_type)}, {duck(dtype.item_type)})"
    if pa.types.is_struct(dtype):
        return f"STRUCT({', '.join(f'{quoted(f.name)} {duck(f.type)}' for f in dtype)})"
    raise Unrenderable(f"the type {dtype}")


def typed(sql: str, dtype: pa.DataType) -> str:
    """Writes DuckDB's own CAST."""
    return f"CAST({sql} AS {duck(dtype)})"


_SHORT = 120


def once(sql: str, body: Callable[[str], str]) -> str:
    """Returns SQL that uses a value several times. A long value is computed once, which costs a tenth of a microsecond
    per row; a short one is cheaper to repeat.
    """
    if len(sql) <= _SHORT:
        return body(sql)
    # Lambdas are nested: only the same value may have the same name.
    variable = f"v{crc32(sql.encode()):08x}"
    return f"list_transform([{sql}], lambda {variable}: {body(variable)})[1]"
