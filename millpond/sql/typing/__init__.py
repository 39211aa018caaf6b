"""Derives Spark's (ANSI) result types, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pyarrow as pa
from sqlglot import exp

from millpond.sql.functions import by_name, by_node
from millpond.sql.typing import aggregates, conditionals, dates, functions, operators
from millpond.sql.typing.coercion import widest
from millpond.sql.typing.rule import Rule, mismatch, visit
from millpond.sql.typing.signatures import signatures, signed

__all__ = ["output_types", "type_of", "widest"]


@cache
def _rules() -> Mapping[type, Rule]:
    """Returns the rules of operators and other syntax, and of the functions that have an expression of their own."""
    own = {node: row.type for node, row in by_node().items() if row.type is not None}
    return {
        **operators.RULES,
        **conditionals.RULES,
        **functions.RULES,
        **dates.RULES,
        **aggregates.RULES,
        **own,
    }


@cache
def _named() -> Mapping[str, Rule]:
    """Returns the rules of functions whose calls remain as written, by their names in capitals."""
    rows = {name: row for name, row in by_name().items() if row.node is None}
    return {name.upper(): row.type for name, row in rows.items() if row.type is not None}


def type_of(node: exp.Expr) -> pa.DataType | None:
    """Returns the type that Spark assigns to an expression, or None if there is no rule for it.

    Columns and scalar subqueries have theirs in ``meta["dtype"]``; the others are derived bottom-up and stored there.
    Raises TypeMismatch for operands that make no sense.
    """
    if "dtype" not in node.meta:
        node.meta["dtype"] = _find(node)
    found: pa.DataType | None = node.meta["dtype"]
    return found


def _find(node: exp.Expr) -> pa.DataType | None:
    if isinstance(node, exp.Query):
        types = output_types(node)
        return types[0] if types else None
    if isinstance(node, exp.Anonymous):
        name = str(node.this).upper()
        rule = _named().get(name)
        if rule is None and name in signatures():
            return signed(signatures()[name], node, _of)
    else:
        rule = _rules().get(type(node))
    found = None if rule is None else rule(node, _of)
    if found is None:
        visit(node, _of)
    return found


def _of(node: exp.Expr | None) -> pa.DataType | None:
    return None if node is None else type_of(node)


def output_types(query: exp.Expr) -> list[pa.DataType | None]:
    """Returns the types of a query's columns; those of a set operation are widened.

    Raises TypeMismatch if the sides of a set operation have no common type.
    """
    if isinstance(query, exp.Subquery):
        return output_types(query.this)
    if isinstance(query, exp.SetOperation):
        left, right = output_types(query.this), output_types(query.expression)
        return [_both(query, a, b) for a, b in zip(left, right, strict=False)]
    if isinstance(query, exp.Select):
        return [type_of(e) for e in query.expressions]
    if isinstance(query, exp.Values):
        rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in query.expressions]
        return [conditionals.branches("VALUES", column, _of) for column in zip(*rows, strict=False)]
    return []


def _both(query: exp.SetOperation, a: pa.DataType | None, b: pa.DataType | None) -> pa.DataType | None:
    if a is None or b is None:
        return None
    common = widest([a, b])
    if common is None:
        raise mismatch(query.key.upper(), a, b, hint="bring the columns to one type with CAST")
    return common
