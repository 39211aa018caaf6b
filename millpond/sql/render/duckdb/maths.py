"""Functions of numbers. Where DuckDB raises outside of a function's domain, Spark's answer is put in."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.render.duckdb.casts import cast
from millpond.sql.render.duckdb.expression import Entry, Expressions
from millpond.sql.render.duckdb.names import Unrenderable, typed
from millpond.sql.typing.coercion import BIGINT, DOUBLE, is_decimal, is_integer
from millpond.sql.typing.functions import integer_value

NAN = "CAST('nan' AS DOUBLE)"
INF = "CAST('inf' AS DOUBLE)"
_LARGEST_WITH_FRACTION = "1e17"


def doubles(template: str) -> Entry:
    """A function of one DOUBLE, written with ``{x}``."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        argument = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
        return "(" + template.format(x=r.to(argument, DOUBLE), nan=NAN) + ")"

    return entry


def absolute(r: Expressions, node: exp.Expr) -> str:
    return typed(f"abs({r.to(node.this, r.type(node))})", r.type(node))


def rounded(r: Expressions, node: exp.Expr) -> str:
    """ROUND, half up: decimals by a cast, doubles by their shortest digits."""
    result, decimals = r.type(node), node.args.get("decimals")
    places = 0 if decimals is None else integer_value(decimals)
    if places is None or places < 0 or places > 15 or node.args.get("truncate"):
        raise Unrenderable("ROUND to these places")
    value = r.sql(node.this)
    if is_integer(result):
        return value
    if is_decimal(result):
        return cast(value, r.type(node.this), result)
    if result != DOUBLE or r.type(node.this) != DOUBLE:
        raise Unrenderable("ROUND of this type")
    digits = f"CAST(CAST({value} AS VARCHAR) AS DECIMAL(38, {places}))"
    exact = f"CAST(CAST({digits} AS VARCHAR) AS DOUBLE)"
    return f"(CASE WHEN abs({value}) < {_LARGEST_WITH_FRACTION} THEN {exact} ELSE {value} END)"


def whole(name: str) -> Entry:
    """FLOOR, CEIL: BIGINT of a DOUBLE, held at its ends, as Java does."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        source, result = r.type(node.this), r.type(node)
        if is_decimal(result):
            return typed(f"{name}({r.sql(node.this)})", result)
        if is_integer(source):
            return cast(r.sql(node.this), source, BIGINT)
        x = r.to(node.this, DOUBLE)
        return (
            f"(CASE WHEN isnan({x}) THEN 0 WHEN {x} >= 9223372036854775807 THEN 9223372036854775807 "
            f"WHEN {x} <= -9223372036854775808 THEN CAST('-9223372036854775808' AS BIGINT) "
            f"ELSE CAST({name}({x}) AS BIGINT) END)"
        )

    return entry


def power(r: Expressions, node: exp.Expr) -> str:
    x, y = r.to(node.this, DOUBLE), r.to(node.expression, DOUBLE)
    return (
        f"(CASE WHEN {x} = 0 AND {y} < 0 THEN {INF} WHEN abs({x}) = 1 AND NOT isfinite({y}) THEN {NAN} "
        f"ELSE pow({x}, {y}) END)"
    )


_LOGS = {"2": "log2", "10": "log10"}


def logarithm(r: Expressions, node: exp.Expr) -> str:
    base = node.this
    name = _LOGS.get(base.name) if isinstance(base, exp.Literal) else None
    if name is None:
        raise Unrenderable("LOG of another base than 2 and 10")
    x = r.to(node.expression, DOUBLE)
    return f"(CASE WHEN {x} > 0 THEN {name}({x}) END)"


def not_a_number(r: Expressions, node: exp.Expr) -> str:
    return f"coalesce(isnan({r.to(node.this, DOUBLE)}), FALSE)"


def nanvl(r: Expressions, node: exp.Expr) -> str:
    x, y = r.to(node.this, DOUBLE), r.to(node.expression, DOUBLE)
    return f"(CASE WHEN isnan({x}) THEN {y} ELSE {x} END)"


def atan2(r: Expressions, node: exp.Expr) -> str:
    return f"atan2({r.to(node.this, DOUBLE)}, {r.to(node.expression, DOUBLE)})"


_FINITE = "CASE WHEN isinf({{x}}) THEN {{nan}} ELSE {}({{x}}) END"
_UNIT = "CASE WHEN abs({{x}}) > 1 THEN {{nan}} ELSE {}({{x}}) END"

ENTRIES: dict[type[exp.Expr], Entry] = {
    exp.Abs: absolute,
    exp.Round: rounded,
    exp.Floor: whole("floor"),
    exp.Ceil: whole("ceil"),
    exp.Sqrt: doubles("CASE WHEN {x} < 0 THEN {nan} ELSE sqrt({x}) END"),
    exp.Cbrt: doubles("cbrt({x})"),
    exp.Pow: power,
    exp.Ln: doubles("CASE WHEN {x} > 0 THEN ln({x}) END"),
    exp.Log: logarithm,
    exp.Exp: doubles("exp({x})"),
    exp.Sign: doubles("CASE WHEN isnan({x}) THEN {nan} ELSE CAST(sign({x}) AS DOUBLE) END"),
    exp.Sin: doubles(_FINITE.format("sin")),
    exp.Cos: doubles(_FINITE.format("cos")),
    exp.Tan: doubles(_FINITE.format("tan")),
    exp.Asin: doubles(_UNIT.format("asin")),
    exp.Acos: doubles(_UNIT.format("acos")),
    exp.Atan: doubles("atan({x})"),
    exp.Atan2: atan2,
    exp.Degrees: doubles("degrees({x})"),
    exp.Radians: doubles("radians({x})"),
    exp.Pi: lambda r, node: "pi()",
    exp.IsNan: not_a_number,
    exp.Nanvl: nanvl,
}

NAMED: dict[str, Entry] = {
    "E": lambda r, node: "exp(CAST(1 AS DOUBLE))",
    "ISNULL": lambda r, node: f"({r.sql(node.expressions[0])} IS NULL)",
    "ISNOTNULL": lambda r, node: f"({r.sql(node.expressions[0])} IS NOT NULL)",
}
