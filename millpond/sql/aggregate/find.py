"""The aggregate calls of a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from millpond.sql.aggregate.nodes import every, not_null
from millpond.sql.grouping import is_aggregate, is_aggregated, without_filter
from millpond.sql.running import from_items

_SAME: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.FirstValue: exp.First,
    exp.LastValue: exp.Last,
    exp.AnyValue: exp.First,
}


@dataclass(frozen=True, slots=True)
class Call:
    """An aggregate call: the function itself, without FILTER and IGNORE NULLS, under one spelling."""

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
    if type(node) in _SAME:
        node = _SAME[type(node)](this=node.this.copy())
    if isinstance(node, exp.RegrAvgx | exp.RegrAvgy | exp.RegrCount):
        # Plain functions of the rows where both values are there.
        condition = every(condition, not_null(node.this), not_null(node.expression))
        item = node.this if isinstance(node, exp.RegrAvgy) else node.expression
        node = (exp.Count if isinstance(node, exp.RegrCount) else exp.Avg)(this=item.copy())
    if isinstance(node, exp.ApproxDistinct):
        # The values are kept in any case: the exact number costs no more.
        node = exp.Count(this=exp.Distinct(expressions=[node.this.copy()]))
    return Call(node, condition, ignore)


def grouping_select(tree: exp.Expr) -> exp.Select | None:
    """The SELECT that groups: the outermost, or the one right under a SELECT that only shapes its columns."""
    if not isinstance(tree, exp.Select):
        return None
    if is_aggregated(tree):
        return tree
    items = list(from_items(tree))
    plain = len(items) == 1 and isinstance(items[0][0], exp.Subquery) and items[0][0].alias == "__out"
    inner = items[0][0].this if plain else None
    return inner if isinstance(inner, exp.Select) and is_aggregated(inner) else None


def aggregates(select: exp.Select) -> Iterator[exp.Expr]:
    """The aggregate calls of a SELECT and its HAVING, each with its FILTER, IGNORE NULLS and WITHIN GROUP; also those
    that stand in a subquery."""
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
