"""How types, identifiers and literals are written in DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import pyarrow as pa

from millpond.types import TIMESTAMP, TIMESTAMP_NTZ


class Unrenderable(Exception):
    """DuckDB has no way, known to this package, to give Spark's answer; the reason says for what."""


NOW = "millpond_now"
"""The variable in which whoever runs a query gives it the time."""
UPPER, LOWER, TITLE = "millpond_upper", "millpond_lower", "millpond_title"
DAYS, MICROS = "millpond_days", "millpond_micros"
"""Functions of Python, for texts that DuckDB reads or writes otherwise than Spark does."""
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
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A string literal."""
    if "\0" in value:
        raise Unrenderable("a string with a zero character")
    return "'" + value.replace("'", "''") + "'"


def duck(dtype: pa.DataType) -> str:
    """The DuckDB name of a type."""
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
    """DuckDB's own CAST."""
    return f"CAST({sql} AS {duck(dtype)})"


_SHORT = 120


def once(sql: str, body: Callable[[str], str]) -> str:
    """SQL that uses a value several times. A long value is computed once, which costs a tenth of a microsecond a row; a
    short one is cheaper to write again."""
    if len(sql) <= _SHORT:
        return body(sql)
    # Lambdas stand inside one another: only the same value may have the same name.
    variable = f"v{crc32(sql.encode()):08x}"
    return f"list_transform([{sql}], lambda {variable}: {body(variable)})[1]"
