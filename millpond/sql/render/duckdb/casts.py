"""Renders CAST with Spark's ANSI meaning, from each kind of type to each other."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from millpond.sql.render.duckdb.names import Unrenderable, duck, once, text, typed
from millpond.sql.render.duckdb.timestrings import date_from_string, time_from_string
from millpond.sql.typing import coercion, decimals
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, type_name

Cast = Callable[[str, pa.DataType, pa.DataType], str]

_SPACE = r"[\x00-\x20\x7F]*"
INTEGER_PATTERN = rf"{_SPACE}[+-]?[0-9]+{_SPACE}"
DECIMAL_PATTERN = rf"{_SPACE}[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?{_SPACE}"
WHITE = "".join(map(chr, range(1, 33))) + chr(127)
_NOT_A = "not a {}: "


def kind(dtype: pa.DataType) -> str:
    """Returns the row or column of the table below for a type."""
    if dtype in coercion.INTEGERS:
        return "int"
    if coercion.is_decimal(dtype):
        return "decimal"
    if coercion.is_list(dtype):
        return "list"
    return _KINDS.get(dtype, "other")


_KINDS = {
    coercion.NULL: "null",
    coercion.BOOLEAN: "bool",
    coercion.FLOAT: "float",
    coercion.DOUBLE: "float",
    coercion.STRING: "string",
    coercion.BINARY: "binary",
    coercion.DATE: "date",
    TIMESTAMP: "time",
    TIMESTAMP_NTZ: "time",
}


def plain(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    return typed(sql, target)


def _truncated(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    return typed(f"trunc({sql})", target)


def _float_to_int(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    """Casts as Java does: 2^63 becomes the largest BIGINT."""
    whole = _truncated(sql, source, target)
    if target != coercion.BIGINT:
        return whole
    return f"CASE WHEN {sql} = 9223372036854775808 THEN 9223372036854775807 ELSE {whole} END"


def _float_to_decimal(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    """Casts through the digits, as Spark does: 0.285 is 0.29 with two places. NaN and infinity are NULL."""
    # DuckDB does not read exponents beyond the digits of a decimal.
    return once(
        typed(sql, coercion.DOUBLE) if source != coercion.DOUBLE else sql,
        lambda x: (
            f"(CASE WHEN abs({x}) < 1e-39 THEN {typed('0', target)} "
            f"WHEN isfinite({x}) THEN {typed(typed(x, coercion.STRING), target)} END)"
        ),
    )


def _float_to_float(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    if target == coercion.FLOAT:
        raise Unrenderable("CAST of DOUBLE to FLOAT, which overflows to infinity in Spark")
    return typed(sql, target)


def _bool_to_decimal(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    return typed(typed(sql, coercion.INT), target)


def _decimal_to_string(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    """Casts to STRING. DuckDB omits the zero before the point if the type has no digit for it."""
    if source.precision > source.scale:
        return typed(sql, target)
    if source.precision == decimals.MAX_PRECISION:
        raise Unrenderable("CAST of DECIMAL(38,38) to STRING")
    return typed(typed(sql, pa.decimal128(source.precision + 1, source.scale)), target)


def _not_zero(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    return f"({sql} <> {typed('0', source)})"


def _checked(sql: str, pattern: str, target: pa.DataType) -> str:
    """Renders a string that must have a form; other strings raise a CAST error that quotes them."""
    wrong = text(_NOT_A.format(type_name(target)))
    return f"CASE WHEN regexp_full_match({sql}, {text(pattern)}) THEN {sql} ELSE {wrong} || {sql} END"


def _string_to_int(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    return typed(_checked(sql, INTEGER_PATTERN, target), target)


def _string_to_decimal(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    return typed(_checked(sql, DECIMAL_PATTERN, target), target)


def _string_to_float(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    if target == coercion.FLOAT:
        raise Unrenderable("CAST of STRING to FLOAT")
    word = f"lower(trim({sql}, {text(WHITE)}))"
    return (
        f"CASE WHEN {word} IN ('inf', '+inf', 'infinity', '+infinity') THEN CAST('inf' AS DOUBLE) "
        f"WHEN {word} IN ('-inf', '-infinity') THEN CAST('-inf' AS DOUBLE) "
        f"WHEN {word} = 'nan' THEN CAST('nan' AS DOUBLE) "
        f"WHEN regexp_full_match({word}, {text(DECIMAL_PATTERN + '[df]')}) "
        f"THEN CAST(left({word}, -1) AS DOUBLE) "
        f"ELSE {typed(_checked(sql, DECIMAL_PATTERN, target), target)} END"
    )


def _string_to_bool(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    word = f"lower(trim({sql}, {text(WHITE)}))"
    return (
        f"CASE WHEN {word} IN ('t', 'true', 'y', 'yes', '1') THEN TRUE "
        f"WHEN {word} IN ('f', 'false', 'n', 'no', '0') THEN FALSE "
        f"ELSE CAST({text(_NOT_A.format('BOOLEAN'))} || {sql} AS BOOLEAN) END"
    )


def _time_to_string(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    return typed(typed(sql, TIMESTAMP_NTZ), coercion.STRING)


def _time_to_int(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    if source != TIMESTAMP:
        raise Unrenderable("CAST of TIMESTAMP_NTZ to a number")
    return typed(f"(epoch_us(date_trunc('second', {sql})) // CAST(1000000 AS BIGINT))", target)


def _int_to_time(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    if target != TIMESTAMP:
        raise Unrenderable("CAST of a number to TIMESTAMP_NTZ")
    return f"make_timestamptz(CAST({sql} AS BIGINT) * CAST(1000000 AS BIGINT))"


def _string_to_date(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    return date_from_string(sql)


def _string_to_time(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    return time_from_string(sql, target)


def _list(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    inner = cast("x", source.value_type, target.value_type)
    return typed(f"list_transform({sql}, lambda x: {inner})", target)


_CASTS: dict[tuple[str, str], Cast] = {
    ("bool", "int"): plain,
    ("bool", "float"): plain,
    ("bool", "decimal"): _bool_to_decimal,
    ("bool", "string"): plain,
    ("int", "bool"): _not_zero,
    ("int", "int"): plain,
    ("int", "float"): plain,
    ("int", "decimal"): plain,
    ("int", "string"): plain,
    ("int", "time"): _int_to_time,
    ("float", "bool"): _not_zero,
    ("float", "int"): _float_to_int,
    ("float", "float"): _float_to_float,
    ("float", "decimal"): _float_to_decimal,
    ("decimal", "bool"): _not_zero,
    ("decimal", "int"): _truncated,
    ("decimal", "float"): plain,
    ("decimal", "decimal"): plain,
    ("decimal", "string"): _decimal_to_string,
    ("string", "bool"): _string_to_bool,
    ("string", "int"): _string_to_int,
    ("string", "float"): _string_to_float,
    ("string", "decimal"): _string_to_decimal,
    ("string", "date"): _string_to_date,
    ("string", "time"): _string_to_time,
    ("date", "time"): plain,
    ("date", "string"): plain,
    ("time", "date"): plain,
    ("time", "time"): plain,
    ("time", "string"): _time_to_string,
    ("time", "int"): _time_to_int,
    ("list", "list"): _list,
}


def cast(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    """Renders ``CAST(sql AS target)`` of an expression of the type ``source``, which raises where Spark raises."""
    if source == target:
        return sql
    if source == coercion.NULL:
        return typed(sql, target)
    rule = _CASTS.get((kind(source), kind(target)))
    if rule is None:
        raise Unrenderable(f"CAST of {type_name(source)} to {type_name(target)}")
    return rule(sql, source, target)


def try_cast(sql: str, source: pa.DataType, target: pa.DataType) -> str:
    """Renders ``TRY_CAST``: NULL where the CAST would raise."""
    if source == target:
        return sql
    if coercion.is_nested(target):
        raise Unrenderable("TRY_CAST of elements")
    return f"TRY({cast(sql, source, target)})" if source != coercion.NULL else f"CAST(NULL AS {duck(target)})"
