"""Combines all entries: what is not in these two tables goes to Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from sqlglot import exp

from millpond.sql.functions import Aggregate, Function, WindowFunction, by_name, by_node
from millpond.sql.render.duckdb import aggregates, arithmetic, dates, nested, operators, paths, patterns
from millpond.sql.render.duckdb.expression import Entry, Expressions

_SYNTAX: dict[type[exp.Expr], Entry] = {
    **operators.ENTRIES,
    **arithmetic.ENTRIES,
    **patterns.ENTRIES,
    **dates.ENTRIES,
    **nested.ENTRIES,
    **aggregates.ENTRIES,
    **paths.ENTRIES,
}


def entry_of(node: exp.Expr) -> Entry | None:
    """Returns the function that renders the expression; None if DuckDB has no exact form of it."""
    if isinstance(node, exp.Anonymous):
        return _named().get(str(node.this).upper())
    return _nodes().get(type(node))


@cache
def _nodes() -> Mapping[type, Entry]:
    """Returns the entries of operators and other syntax, and of the functions that have an expression of their own."""
    own = {node: _entry(row) for node, row in by_node().items() if _claimed(row)}
    return {**own, **_SYNTAX}


@cache
def _named() -> Mapping[str, Entry]:
    """Returns the entries of the functions that are called by name, in capitals."""
    rows = {name: row for name, row in by_name().items() if row.node is None and _claimed(row)}
    return {name.upper(): _entry(row) for name, row in rows.items()}


def _claimed(row: Function) -> bool:
    """Returns whether DuckDB supports the function, other than only in OVER."""
    return row.duckdb is not None and not isinstance(row, WindowFunction)


def _entry(row: Function) -> Entry:
    form = row.duckdb
    if isinstance(form, str):
        return _template(form)
    assert form is not None
    return aggregates.aggregate if isinstance(row, Aggregate) else form


def _template(text: str) -> Entry:
    def entry(r: Expressions, node: exp.Expr) -> str:
        return text.format(*r.given(node))

    return entry
