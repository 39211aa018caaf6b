"""Renders columns, literals, comparisons, logic and conditional expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.sql.render.duckdb.casts import try_cast
from millpond.sql.render.duckdb.expression import Entry, Expressions
from millpond.sql.render.duckdb.names import Unrenderable, once, quoted, text, typed
from millpond.sql.render.duckdb.raising import cast_may_raise, may_raise
from millpond.sql.render.duckdb.timestrings import refuse_words
from millpond.sql.typing import coercion, output_types
from millpond.sql.typing.coercion import BINARY, BOOLEAN, NULL, STRING
from millpond.sql.typing.operators import plain_number

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_EQUALITIES = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)


def column(r: Expressions, node: exp.Expr) -> str:
    parts = [p for p in (node.args.get("table"), node.this) if p is not None]
    if node.args.get("db") or not all(isinstance(p, exp.Identifier) for p in parts):
        raise Unrenderable(f"the column {node.sql()}")
    return ".".join(quoted(p.name) for p in parts)


def literal(r: Expressions, node: exp.Expr) -> str:
    if isinstance(node, exp.Literal) and node.is_string:
        return typed(text(node.name), STRING)
    number = plain_number(node)
    if number is None:
        raise Unrenderable(f"the literal {node.sql()}")
    return typed(text(number) if coercion.is_decimal(r.type(node)) else number, r.type(node))


def hex_string(r: Expressions, node: exp.Expr) -> str:
    return f"unhex({text(node.name)})"


def paren(r: Expressions, node: exp.Expr) -> str:
    return f"({r.sql(node.this)})"


def common(r: Expressions, nodes: Sequence[exp.Expr]) -> pa.DataType:
    """Returns the type in which all of them are compared."""
    found = coercion.widest([r.type(n) for n in nodes])
    if found is None:
        raise Unrenderable("a comparison of types without a common one")
    return found


def comparison(r: Expressions, node: exp.Expr) -> str:
    left, right = node.this, node.expression
    dtype = common(r, (left, right))
    if coercion.is_nested(dtype) and not isinstance(node, _EQUALITIES):
        raise Unrenderable("an order of arrays and structs")
    return f"({r.to(left, dtype)} {_COMPARISONS[type(node)]} {r.to(right, dtype)})"


def between(r: Expressions, node: exp.Expr) -> str:
    low, high = node.args["low"], node.args["high"]
    below, above = common(r, (node.this, low)), common(r, (node.this, high))
    if node.args.get("symmetric"):
        raise Unrenderable("BETWEEN SYMMETRIC")
    if coercion.is_nested(below) or coercion.is_nested(above):
        raise Unrenderable("an order of arrays and structs")
    above_low = f"{r.to(node.this, below)} >= {r.to(low, below)}"
    below_high = f"{r.to(node.this, above)} <= {r.to(high, above)}"
    if any(may_raise(e) or cast_may_raise(r.type(e), t) for e, t in ((low, below), (high, above))):
        # For NULL, neither bound is evaluated, nor the upper bound for a value below the lower one.
        first = f"WHEN {r.sql(node.this)} IS NULL THEN NULL WHEN NOT ({above_low}) THEN FALSE"
        return f"(CASE {first} ELSE {above_low} AND {below_high} END)"
    return f"({above_low} AND {below_high})"


def membership(r: Expressions, node: exp.Expr) -> str:
    query = node.args.get("query")
    if query is not None:
        return _in_query(r, node.this, query)
    if node.args.get("unnest") or node.args.get("field") or not node.expressions:
        raise Unrenderable("IN without a list")
    dtype = common(r, (node.this, *node.expressions))
    if any(may_raise(e) or cast_may_raise(r.type(e), dtype) for e in node.expressions):
        return _one_by_one(r.to(node.this, dtype), [r.to(e, dtype) for e in node.expressions])
    return f"({r.to(node.this, dtype)} IN ({', '.join(r.to(e, dtype) for e in node.expressions)}))"


def _one_by_one(value: str, items: Sequence[str]) -> str:
    """Renders IN with items that can raise: items after a match are not evaluated."""
    if len(items) > _MOST_RAISING:
        raise Unrenderable("IN of many values that can raise")

    def body(v: str) -> str:
        found = " ".join(f"WHEN {v} = {item} THEN TRUE" for item in items)
        missing = " ".join(f"WHEN {item} IS NULL THEN NULL" for item in items)
        return f"(CASE WHEN {v} IS NULL THEN NULL {found} {missing} ELSE FALSE END)"

    return once(value, body)


_MOST_RAISING = 20


def _in_query(r: Expressions, value: exp.Expr, query: exp.Expr) -> str:
    types = output_types(query)
    if len(types) != 1 or types[0] is None:
        raise Unrenderable("IN over a query whose type is not known")
    dtype = coercion.meet(r.type(value), types[0])
    if dtype is None:
        raise Unrenderable("IN over a query of another type")
    inner = r.query(query)
    if dtype != types[0]:
        from millpond.sql.render.duckdb.casts import cast

        inner = f"SELECT {cast('c', types[0], dtype)} FROM ({inner}) AS s(c)"
    return f"({r.to(value, dtype)} IN ({inner}))"


def exists(r: Expressions, node: exp.Expr) -> str:
    if not isinstance(node.this, exp.Query):
        raise Unrenderable("EXISTS over an array")
    return f"EXISTS ({r.query(node.this)})"


def scalar_query(r: Expressions, node: exp.Expr) -> str:
    if node.args.get("alias") is not None:
        raise Unrenderable("a scalar subquery with an alias")
    return f"({r.query(node.this)})"


def logic(symbol: str, decided: str) -> Entry:
    """Returns the entry for AND and OR; a part that can raise is not evaluated if an earlier part decides."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        parts = list(node.flatten())
        found = [r.to(part, BOOLEAN) for part in parts]
        together = f"({f' {symbol} '.join(found)})"
        if not any(may_raise(part) for part in parts[1:]):
            return together
        tests = " ".join(f"WHEN {part} IS {decided} THEN {decided}" for part in found[:-1])
        return f"(CASE {tests} ELSE {together} END)"

    return entry


def negation(r: Expressions, node: exp.Expr) -> str:
    return f"(NOT {r.to(node.this, BOOLEAN)})"


def is_(r: Expressions, node: exp.Expr) -> str:
    right = node.expression
    if isinstance(right, exp.Not):
        right, word = right.this, "IS NOT"
    else:
        word = "IS"
    if isinstance(right, exp.Null):
        return f"({r.sql(node.this)} {word} NULL)"
    if isinstance(right, exp.Boolean):
        return f"({r.to(node.this, BOOLEAN)} {word} {'TRUE' if right.this else 'FALSE'})"
    raise Unrenderable("IS")


def case(r: Expressions, node: exp.Expr) -> str:
    result, subject = r.type(node), node.args.get("this")
    parts = ["CASE"]
    for branch in node.args["ifs"]:
        test = branch.this if subject is None else exp.EQ(this=subject.copy(), expression=branch.this.copy())
        parts.append(f"WHEN {r.to(test, BOOLEAN)} THEN {r.to(branch.args['true'], result)}")
    default = node.args.get("default")
    parts.append(f"ELSE {r.to(default, result)}" if default is not None else "ELSE NULL")
    return typed_null(" ".join(parts) + " END", result)


def typed_null(sql: str, dtype: pa.DataType) -> str:
    return f"({sql})" if dtype != NULL else "NULL"


def iff(r: Expressions, node: exp.Expr) -> str:
    result, default = r.type(node), node.args.get("false")
    otherwise = r.to(default, result) if default is not None else "NULL"
    chosen = (
        f"CASE WHEN {r.to(node.this, BOOLEAN)} THEN {r.to(node.args['true'], result)} ELSE {otherwise} END"
    )
    return typed_null(chosen, result)


def nvl2(r: Expressions, node: exp.Expr) -> str:
    result = r.type(node)
    yes, no = r.to(node.args["true"], result), r.to(node.args["false"], result)
    return typed_null(f"CASE WHEN {r.sql(node.this)} IS NOT NULL THEN {yes} ELSE {no} END", result)


def choice(name: str) -> Entry:
    """Returns the entry for COALESCE, GREATEST and LEAST; the latter two skip NULLs in both systems."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        result = r.type(node)
        if name != "coalesce" and coercion.is_nested(result):
            raise Unrenderable("an order of arrays and structs")
        items = ", ".join(r.to(e, result) for e in (node.this, *node.expressions))
        return typed_null(f"{name}({items})", result)

    return entry


def nullif(r: Expressions, node: exp.Expr) -> str:
    dtype = common(r, (node.this, node.expression))
    same = f"{r.to(node.this, dtype)} = {r.to(node.expression, dtype)}"
    return typed_null(f"CASE WHEN {same} THEN NULL ELSE {r.sql(node.this)} END", r.type(node))


def cast_entry(r: Expressions, node: exp.Expr) -> str:
    target = r.type(node)
    if node.args.get("format") or node.args.get("default"):
        raise Unrenderable("CAST with a format")
    if node.args.get("safe"):
        if may_raise(node.this):
            raise Unrenderable("TRY_CAST of something that can raise itself")
        if isinstance(node.this, exp.Literal) and node.this.is_string:
            refuse_words(node.this.name, target)
        return try_cast(r.sql(node.this), r.type(node.this), target)
    if isinstance(node.this, exp.Literal) and node.this.is_string:
        return _written(r, node.this, target)
    return r.to(node.this, target)


def _written(r: Expressions, node: exp.Literal, target: pa.DataType) -> str:
    """Renders a cast of a text literal, whose value is known here."""
    if target in coercion.FLOATS and _NUMBER.fullmatch(node.name):
        return typed(text(node.name), target)
    return r.to(node, target)


_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]{1,3})?", re.IGNORECASE)


def concatenation(r: Expressions, node: exp.Expr) -> str:
    items = node.expressions if isinstance(node, exp.Anonymous) else [node.this, node.expression]
    result = r.type(node)
    if not items:
        return typed("''", STRING)
    if result not in (STRING, BINARY):
        raise Unrenderable("CONCAT of arrays")
    return f"({' || '.join(r.to(e, result) for e in items)})"


ENTRIES: dict[type[exp.Expr], Entry] = {
    exp.Column: column,
    exp.Literal: literal,
    exp.HexString: hex_string,
    exp.Null: lambda r, node: "NULL",
    exp.Boolean: lambda r, node: "TRUE" if node.this else "FALSE",
    exp.Paren: paren,
    **dict.fromkeys(_COMPARISONS, comparison),
    exp.Between: between,
    exp.In: membership,
    exp.Exists: exists,
    exp.Subquery: scalar_query,
    exp.And: logic("AND", "FALSE"),
    exp.Or: logic("OR", "TRUE"),
    exp.Not: negation,
    exp.Is: is_,
    exp.Case: case,
    exp.DPipe: concatenation,
}


def cast_call(r: Expressions, node: exp.Expr) -> str:
    """Renders ``BIGINT(x)`` as ``CAST(x AS BIGINT)``."""
    return r.to(node.expressions[0], r.type(node))
