"""Renders functions of numbers. Where DuckDB raises outside a function's domain, uses Spark's result."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.render.duckdb.arithmetic import NEGATED_DIGITS
from millpond.sql.render.duckdb.casts import cast
from millpond.sql.render.duckdb.expression import Entry, Expressions
from millpond.sql.render.duckdb.names import Unrenderable, once, typed
from millpond.sql.typing.coercion import BIGINT, DOUBLE, FLOAT, NULL, is_decimal, is_integer
from millpond.sql.typing.functions import integer_value

NAN = "CAST('nan' AS DOUBLE)"
INF = "CAST('inf' AS DOUBLE)"
_LARGEST_WITH_FRACTION = "1e17"


def doubles(template: str) -> Entry:
    """Returns an entry for a function of one DOUBLE, written with ``{x}``."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        (value,) = r.given(node)
        if template.count("{x}") == 1:
            return f"({template.format(x=value, nan=NAN)})"
        return once(value, lambda x: f"({template.format(x=x, nan=NAN)})")

    return entry


def absolute(r: Expressions, node: exp.Expr) -> str:
    result = r.type(node)
    if is_decimal(result) and result.precision > NEGATED_DIGITS:
        raise Unrenderable("the absolute value of a decimal that Spark rounds")
    return typed(f"abs({r.to(node.expressions[0], result)})", result)


def rounded(r: Expressions, node: exp.Expr) -> str:
    """Renders ROUND, half up: decimals by a cast, doubles by their shortest digits."""
    argument, result = node.expressions[0], r.type(node)
    places = integer_value(node.expressions[1]) if len(node.expressions) > 1 else 0
    if places is None or places < 0 or places > 15:
        raise Unrenderable("ROUND to these places")
    value = r.sql(argument)
    if is_integer(result):
        return value
    if is_decimal(result):
        return cast(value, r.type(argument), result)
    if result != DOUBLE or r.type(argument) != DOUBLE:
        raise Unrenderable("ROUND of this type")

    def body(x: str) -> str:
        digits = f"CAST(CAST({x} AS VARCHAR) AS DECIMAL(38, {places}))"
        exact = f"CAST(CAST({digits} AS VARCHAR) AS DOUBLE)"
        # Java has no negative zero here, also not as the result of rounding.
        return f"(CASE WHEN abs({x}) < {_LARGEST_WITH_FRACTION} THEN {exact} ELSE {x} END)"

    return once(value, body)


def whole(name: str) -> Entry:
    """Returns the entry for FLOOR and CEIL: BIGINT of a DOUBLE, limited to its range, as in Java."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        if len(node.expressions) > 1:
            raise Unrenderable(f"{name.upper()} to places")
        (argument,) = node.expressions
        source, result = r.type(argument), r.type(node)
        if is_decimal(result):
            return typed(f"{name}({r.sql(argument)})", result)
        if is_integer(source):
            return cast(r.sql(argument), source, BIGINT)
        return once(
            r.to(argument, DOUBLE),
            lambda x: (
                f"(CASE WHEN isnan({x}) THEN 0 WHEN {x} >= 9223372036854775807 THEN 9223372036854775807 "
                f"WHEN {x} <= -9223372036854775808 THEN CAST('-9223372036854775808' AS BIGINT) "
                f"ELSE CAST({name}({x}) AS BIGINT) END)"
            ),
        )

    return entry


def power(r: Expressions, node: exp.Expr) -> str:
    x, y = r.given(node)
    return once(x, lambda a: once(y, lambda b: _power(a, b)))


def _power(x: str, y: str) -> str:
    return (
        f"(CASE WHEN {x} = 0 AND {y} < 0 AND signbit({x}) AND abs({y} % 2) = 1 THEN -{INF} "
        f"WHEN {x} = 0 AND {y} < 0 THEN {INF} WHEN abs({x}) = 1 AND NOT isfinite({y}) THEN {NAN} "
        f"ELSE pow({x}, {y}) END)"
    )


_LOGS = {"2": "log2", "10": "log10"}


def logarithm(r: Expressions, node: exp.Expr) -> str:
    """Renders LOG(x), the natural logarithm, and LOG(base, x)."""
    values = r.given(node)
    if len(values) == 1:
        return once(values[0], lambda x: f"(CASE WHEN {x} > 0 THEN ln({x}) END)")
    name = _LOGS.get(node.expressions[0].name) if isinstance(node.expressions[0], exp.Literal) else None
    if name is None:
        raise Unrenderable("LOG of another base than 2 and 10")
    return once(values[1], lambda x: f"(CASE WHEN {x} > 0 THEN {name}({x}) END)")


def not_a_number(r: Expressions, node: exp.Expr) -> str:
    (argument,) = node.expressions
    return f"coalesce(isnan({r.to(argument, DOUBLE)}), FALSE)"


def nanvl(r: Expressions, node: exp.Expr) -> str:
    result = r.type(node)
    if result not in (DOUBLE, FLOAT):
        raise Unrenderable("NANVL of this type")
    x, y = (r.to(e, result) for e in node.expressions)
    return once(x, lambda v: f"(CASE WHEN isnan({v}) THEN {y} ELSE {v} END)")


def null_test(symbol: str) -> Entry:
    def entry(r: Expressions, node: exp.Expr) -> str:
        (argument,) = node.expressions
        if r.type(argument) == NULL:
            return "TRUE" if symbol == "IS NULL" else "FALSE"
        return f"({r.sql(argument)} {symbol})"

    return entry


def atan2(r: Expressions, node: exp.Expr) -> str:
    y, x = r.given(node)
    # Java first adds a zero, so the result has no sign.
    return f"atan2({y} + 0.0::DOUBLE, {x} + 0.0::DOUBLE)"


def of_angle(name: str) -> Entry:
    """Returns the entry for SIN, COS and TAN: NaN of an infinite angle."""
    return doubles(f"CASE WHEN isinf({{x}}) THEN {{nan}} ELSE {name}({{x}}) END")


def of_share(name: str) -> Entry:
    """Returns the entry for ASIN and ACOS: NaN outside -1 to 1."""
    return doubles(f"CASE WHEN abs({{x}}) > 1 THEN {{nan}} ELSE {name}({{x}}) END")


ENTRIES: dict[type[exp.Expr], Entry] = {}
