"""Finds the aggregate calls of a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from millpond.sql.functions import Aggregate, by_node
from millpond.sql.grouping import is_aggregate, is_aggregated, without_filter
from millpond.sql.running_queries import from_items


@dataclass(frozen=True, slots=True)
class Call:
    """Describes an aggregate call: the function itself, without FILTER and IGNORE NULLS, under one spelling."""

    function: exp.Expr
    condition: exp.Expr | None
    ignore_nulls: bool

    @property
    def distinct(self) -> bool:
        return isinstance(self.function.this, exp.Distinct)

    @property
    def name(self) -> str:
        function = self.function.this if isinstance(self.function, exp.WithinGroup) else self.function
        if isinstance(function, exp.Anonymous):
            return str(function.this).upper()
        return type(function).sql_name() if isinstance(function, exp.Func) else function.key.upper()


def call_of(node: exp.Expr) -> Call:
    condition: exp.Expr | None = None
    ignore = False
    while isinstance(node, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        if isinstance(node, exp.Filter):
            condition = node.expression.this
        ignore = ignore or isinstance(node, exp.IgnoreNulls)
        node = node.this
    row = row_of(node)
    if row is not None and row.lowers is not None:
        node, condition = row.lowers(node, condition)
    return Call(node, condition, ignore)


def row_of(node: exp.Expr) -> Aggregate | None:
    """Returns the row, in the table of functions, of an aggregate that has its own expression class."""
    row = by_node().get(type(node))
    return row if isinstance(row, Aggregate) else None


def grouping_select(tree: exp.Expr) -> exp.Select | None:
    """Returns the SELECT that groups: the outermost one, or the one directly under a SELECT that only shapes its
    columns.
    """
    if not isinstance(tree, exp.Select):
        return None
    if is_aggregated(tree):
        return tree
    items = list(from_items(tree))
    plain = len(items) == 1 and isinstance(items[0][0], exp.Subquery) and items[0][0].alias == "__out"
    inner = items[0][0].this if plain else None
    return inner if isinstance(inner, exp.Select) and is_aggregated(inner) else None


def aggregates(select: exp.Select) -> Iterator[exp.Expr]:
    """Yields the aggregate calls of a SELECT and its HAVING, each with its FILTER, IGNORE NULLS and WITHIN GROUP,
    including those in a subquery.
    """
    roots: list[exp.Expr] = list(select.expressions)
    if select.args.get("having") is not None:
        roots.append(select.args["having"].this)

    def walk(node: exp.Expr, within: bool) -> Iterator[exp.Expr]:
        if node.meta.get("outer") if within else is_aggregate(without_filter(node)):
            yield node
        else:
            for child in node.iter_expressions():
                yield from walk(child, within or isinstance(child, exp.Query))

    for root in roots:
        yield from walk(root, False)
