"""Renders arithmetic with Spark's result types: overflow and division by zero raise, decimals are exact."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.sql.render.duckdb.casts import cast
from millpond.sql.render.duckdb.expression import Entry, Expressions
from millpond.sql.render.duckdb.intervals import date_arithmetic
from millpond.sql.render.duckdb.names import Unrenderable, typed
from millpond.sql.render.duckdb.operators import literal
from millpond.sql.render.duckdb.raising import may_raise
from millpond.sql.typing import coercion, decimals
from millpond.sql.typing.coercion import (
    BIGINT,
    DATE,
    DOUBLE,
    DURATION,
    NULL,
    STRING,
    is_decimal,
    is_integer,
)
from millpond.sql.typing.functions import as_operator
from millpond.sql.typing.operators import decimal_operand, plain_number
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ

_DIGITS_OF_64_BITS = 18
_SYMBOLS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}


def arithmetic(r: Expressions, node: exp.Expr) -> str:
    result = r.type(node)
    if result in (DATE, TIMESTAMP, TIMESTAMP_NTZ, DURATION):
        return date_arithmetic(r, node)
    if is_decimal(result):
        return _decimal(r, node, result)
    left, right = (
        _number(r, node.this, node.expression, result),
        _number(r, node.expression, node.this, result),
    )
    return f"({left} {_SYMBOLS[type(node)]} {right})"


def _number(r: Expressions, node: exp.Expr, other: exp.Expr, result: pa.DataType) -> str:
    """Renders an operand in the type of the result. A text next to an integer is an integer, also in a division."""
    if r.type(node) == STRING and is_integer(r.type(other)) and result == DOUBLE:
        return cast(r.to(node, BIGINT), BIGINT, result)
    return r.to(node, result)


def operator(r: Expressions, node: exp.Expr) -> str:
    return r.sql(as_operator(node))


def safe(r: Expressions, node: exp.Expr) -> str:
    """Renders TRY_ADD and similar: NULL if they fail themselves, not if an operand fails."""
    if any(may_raise(e) for e in node.expressions):
        raise Unrenderable(f"{node.name.upper()} of something that can raise itself")
    return f"TRY({operator(r, node)})"


def _operand(r: Expressions, node: exp.Expr, other: exp.Expr) -> tuple[str, pa.DataType]:
    """Renders an operand of decimal arithmetic, as a decimal."""
    source = r.type(node)
    dtype = r.type(other) if source == NULL else decimal_operand(node, source)
    if dtype is None or not is_decimal(dtype):
        raise Unrenderable("decimal arithmetic with another type")
    return cast(r.sql(node), source, dtype), dtype


def _decimal(r: Expressions, node: exp.Expr, result: pa.DataType) -> str:
    left, a = _operand(r, node.this, node.expression)
    right, b = _operand(r, node.expression, node.this)
    if isinstance(node, exp.Div):
        return divide(left, a, right, b, result)
    if isinstance(node, exp.Mul):
        return _multiply(left, a, right, b, result)
    if isinstance(node, exp.Mod):
        return _modulo(left, a, right, b, result)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    if result.scale < max(a.scale, b.scale) or result.precision - result.scale < whole:
        operation = "subtract" if isinstance(node, exp.Sub | exp.SafeSubtract) else "add"
        return _wide(operation, left, a, right, b, result)
    symbol = _SYMBOLS[type(node)]
    if _type_of_sum(a, b) == result:
        return f"({left} {symbol} {right})"
    return typed(f"({cast(left, a, result)} {symbol} {cast(right, b, result)})", result)


def _type_of_sum(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Returns the type that DuckDB gives a sum or difference: mostly Spark's, which spares casts of every value. None
    if that has too few digits: it does not leave 64 bits by itself.
    """
    scale = max(a.scale, b.scale)
    digits = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    if digits > _DIGITS_OF_64_BITS >= max(a.precision, b.precision):
        return None
    return pa.decimal128(min(digits, decimals.MAX_PRECISION), scale)


def _wide(operation: str, left: str, a: pa.DataType, right: str, b: pa.DataType, result: pa.DataType) -> str:
    """Renders a call of the function that computes with more than 38 digits; its name contains the types
    (``query/decimals.py``).
    """
    types = "_".join(f"{t.precision}_{t.scale}" for t in (a, b, result))
    return f"decimal_{operation}_{types}({left}, {right})"


def _multiply(left: str, a: pa.DataType, right: str, b: pa.DataType, result: pa.DataType) -> str:
    """Multiplies decimals. DuckDB multiplies the digits as integers; a wide left side forces 128 bits."""
    if result.scale < a.scale + b.scale:
        return _wide("multiply", left, a, right, b, result)
    wide = pa.decimal128(max(a.precision, 19), a.scale)
    return typed(f"({cast(left, a, wide)} * {right})", result)


def _modulo(left: str, a: pa.DataType, right: str, b: pa.DataType, result: pa.DataType) -> str:
    both = decimals.union(a, b)
    if both.scale < max(a.scale, b.scale) or both.precision - both.scale < max(
        a.precision - a.scale, b.precision - b.scale
    ):
        raise Unrenderable("a decimal remainder of more than 38 digits")
    return typed(f"({cast(left, a, both)} % {cast(right, b, both)})", result)


def divide(left: str, a: pa.DataType, right: str, b: pa.DataType, result: pa.DataType) -> str:
    """Divides two decimals, rounded half up, by dividing their digits as integers.

    ``n`` is the digits of the left side, shifted so that ``n // d`` has the scale of the result. The remainder adds one
    more digit, and casting that digit away rounds.
    """
    shift = result.scale + b.scale - a.scale
    if shift < 0 or a.precision + shift > decimals.MAX_PRECISION or b.precision >= decimals.MAX_PRECISION:
        return _wide("divide", left, a, right, b, result)
    n = f"({_digits(left, a)} * {10**shift}::HUGEINT)"
    d = _digits(right, b)
    tenth = _decimal_of(f"((({n} % {d}) * 10::HUGEINT) // {d})", pa.decimal128(38, 1))
    quotient = f"({n} // {d} + CAST(CAST({tenth} AS DECIMAL(38, 0)) AS HUGEINT))"
    return typed(_decimal_of(quotient, pa.decimal128(38, result.scale)), result)


def _digits(sql: str, dtype: pa.DataType) -> str:
    """Returns a decimal without its point, as HUGEINT."""
    if dtype.scale == 0:
        return f"CAST({sql} AS HUGEINT)"
    if dtype.precision + dtype.scale <= decimals.MAX_PRECISION:
        wide = typed(sql, pa.decimal128(38, dtype.scale))
        return f"CAST({wide} * CAST({10**dtype.scale} AS DECIMAL({dtype.scale + 1}, 0)) AS HUGEINT)"
    return f"CAST(replace(CAST({sql} AS VARCHAR), '.', '') AS HUGEINT)"


def _decimal_of(digits: str, dtype: pa.DataType) -> str:
    """Returns the decimal of the given scale with the digits of an integer."""
    whole = f"CAST({digits} AS DECIMAL(38, 0))"
    if dtype.scale == 0:
        return whole
    unit = "0." + "0" * (dtype.scale - 1) + "1"
    return f"({whole} * CAST('{unit}' AS DECIMAL({dtype.scale}, {dtype.scale})))"


def integer_division(r: Expressions, node: exp.Expr) -> str:
    common = coercion.meet(r.type(node.this), r.type(node.expression))
    if common is None or not coercion.is_integer(common):
        raise Unrenderable("DIV of other types than integers")
    return f"({r.to(node.this, BIGINT)} // {r.to(node.expression, BIGINT)})"


NEGATED_DIGITS = 34
"""The number of digits up to which Spark negates decimals, and takes their absolute value, exactly."""


def minus(r: Expressions, node: exp.Expr) -> str:
    if plain_number(node) is not None:
        return literal(r, node)
    result = r.type(node)
    if is_decimal(result) and result.precision > NEGATED_DIGITS:
        raise Unrenderable("the negative of a decimal that Spark rounds")
    return typed(f"(- {r.to(node.this, r.type(node))})", r.type(node))


def bitwise(symbol: str) -> Entry:
    def entry(r: Expressions, node: exp.Expr) -> str:
        result = r.type(node)
        left, right = r.to(node.this, result), r.to(node.expression, result)
        return f"xor({left}, {right})" if symbol == "^" else f"({left} {symbol} {right})"

    return entry


def modulo(r: Expressions, node: exp.Expr) -> str:
    """Renders the remainder, with the sign of the dividend; the lowest integer by -1 is 0, where DuckDB overflows."""
    result = r.type(node)
    if not coercion.is_integer(result):
        return arithmetic(r, node)
    wide = BIGINT if result != BIGINT else pa.decimal128(38, 0)
    left, right = (cast(r.to(e, result), result, wide) for e in (node.this, node.expression))
    return typed(f"({left} % {right})", result)


def positive_modulo(r: Expressions, node: exp.Expr) -> str:
    """Renders PMOD: the remainder, plus the divisor if it is negative."""
    result, (left, right) = r.type(node), node.expressions
    if not coercion.is_integer(result) or result == BIGINT:
        raise Unrenderable("PMOD of these types")
    a, b = (cast(r.to(e, result), result, BIGINT) for e in (left, right))
    return typed(f"CASE WHEN {a} % {b} < 0 THEN ({a} % {b} + {b}) % {b} ELSE {a} % {b} END", result)


def positive(r: Expressions, node: exp.Expr) -> str:
    return r.to(node.expressions[0], r.type(node))


ENTRIES: dict[type[exp.Expr], Entry] = {
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div), arithmetic),
    exp.Mod: modulo,
    exp.IntDiv: integer_division,
    exp.Neg: minus,
    exp.BitwiseAnd: bitwise("&"),
    exp.BitwiseOr: bitwise("|"),
    exp.BitwiseXor: bitwise("^"),
    exp.BitwiseNot: lambda r, node: f"(~ {r.to(node.this, r.type(node))})",
}
