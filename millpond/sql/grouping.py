"""Checks what may occur next to an aggregate."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from millpond.errors import Place, SqlError
from millpond.sql.functions import Aggregate, by_name
from millpond.sql.typing import type_of
from millpond.types import type_name


def is_aggregate(node: exp.Expr) -> bool:
    """Returns whether the node is itself an aggregate call of its query: not one in OVER, nor one of an outer query."""
    if isinstance(node, exp.Anonymous):
        aggregate = isinstance(by_name().get(node.name.lower()), Aggregate)
    else:
        aggregate = isinstance(node, exp.AggFunc) and not isinstance(
            node, exp.RowNumber | exp.Lag | exp.Lead | exp.NthValue
        )
    if not aggregate or node.meta.get("outer"):
        return False
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        parent = parent.parent
    return not (isinstance(parent, exp.Window))


def _nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the nodes of an expression, without those of its subqueries."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += [n for n in found.iter_expressions(reverse=True) if not isinstance(n, exp.Query)]


def contains_aggregate(node: exp.Expr) -> bool:
    return any(is_aggregate(n) for n in _nodes(node))


def contains_window(node: exp.Expr) -> bool:
    return any(isinstance(n, exp.Window) for n in _nodes(node))


def is_aggregated(select: exp.Select) -> bool:
    """Returns whether a SELECT groups its rows."""
    if select.args.get("group") is not None or select.args.get("having") is not None:
        return True
    return any(contains_aggregate(p) for p in select.expressions)


def check_grouping(select: exp.Select, place: Callable[[exp.Expr], Place | None]) -> Iterator[SqlError]:
    """Checks that a column next to an aggregate is grouped by."""
    if not is_aggregated(select):
        return
    keys = grouping_keys(select)
    clauses = list(clauses_of(select))
    for clause in clauses:
        for node in filter(is_aggregate, _nodes(clause)):
            if any(is_aggregate(n) for n in _nodes(node) if n is not node):
                yield SqlError(
                    "an aggregate cannot stand inside another one", place=place(node) or place(select)
                )
                return
            if contains_window(node):
                yield SqlError(
                    "OVER cannot stand inside an aggregate",
                    hint="compute it in a subquery, and aggregate there",
                    place=place(node) or place(select),
                )
                return
    own = {i.alias_or_name.lower() for i in _inputs(select)}
    for clause in clauses:
        for column in _ungrouped(clause, keys, own):
            yield SqlError(
                f'column "{column.name}" is neither grouped by nor inside an aggregate',
                hint=f"add it to GROUP BY, or use any_value({column.name})",
                place=place(column) or place(select),
            )


def clauses_of(select: exp.Select) -> Iterator[exp.Expr]:
    """Yields the expressions that see groups, not rows."""
    yield from select.expressions
    for key in ("having", "qualify"):
        if select.args.get(key) is not None:
            yield select.args[key].this
    order = select.args.get("order")
    yield from order.expressions if order is not None else ()


def grouping_keys(select: exp.Select) -> list[exp.Expr]:
    """Returns the expressions that a SELECT groups by."""
    group = select.args.get("group")
    if group is None:
        return []
    return [k for e in (*group.expressions, *(group.args.get("grouping_sets") or ())) for k in keys_of(e)]


def keys_of(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the expressions that a part of GROUP BY groups by: ROLLUP, CUBE and GROUPING SETS contain several."""
    if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
        for inner in node.expressions:
            yield from keys_of(inner)
    elif isinstance(node, exp.Paren):
        yield from keys_of(node.this)
    else:
        yield node


def drop_unused_keys(select: exp.Select) -> None:
    """Handles `GROUP BY a, b GROUPING SETS ((a), ())`: a key that is in none of the sets is NULL in every group."""
    group = select.args.get("group")
    sets = group.args.get("grouping_sets") if group is not None else None
    if group is None or not sets:
        return
    inside = list(keys_of(sets[0]))
    gone = [key for key in group.expressions if key not in inside]
    clauses = list(clauses_of(select))
    types = [type_of(key) for key in gone]
    if None in types or any(_tells_sets(n) for c in clauses for n in _nodes(c)):
        return  # only Spark supports it
    for clause in clauses:
        for key in gone:
            _put_null(clause, key)
    group.set("expressions", sets)
    group.set("grouping_sets", None)
    if not inside:
        # After keys, GROUPING SETS (()) returns no group if there are no rows, unlike on its own.
        some = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0))
        having = select.args.get("having")
        select.set("having", exp.Having(this=exp.and_(having.this, some) if having else some))


def _tells_sets(node: exp.Expr) -> bool:
    name = str(node.this) if isinstance(node, exp.Anonymous) else node.key
    return name.lower() in ("grouping", "grouping_id", "groupingid")


def _put_null(node: exp.Expr, key: exp.Expr) -> None:
    if node == key:
        dtype = type_of(key)
        assert dtype is not None
        made = exp.Cast(this=exp.Null(), to=exp.DataType.build(type_name(dtype), dialect="spark"))
        node.replace(made)
    elif not is_aggregate(node):
        for child in list(node.iter_expressions()):
            _put_null(child, key)


def _inputs(select: exp.Select) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this
    for join in select.args.get("joins") or ():
        yield join.this
    yield from select.args.get("laterals") or ()


def without_filter(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    return node


def _ungrouped(
    node: exp.Expr, keys: list[exp.Expr], own: set[str], *, within: bool = False
) -> Iterator[exp.Column]:
    """Yields the columns of a SELECT in places where only groups are visible; ``within`` a subquery too."""
    if node in keys or node.meta.get("outer") or (not within and is_aggregate(without_filter(node))):
        return
    if isinstance(node, exp.Column):
        if node.table.lower() in own:
            yield node
        return
    for child in node.iter_expressions():
        yield from _ungrouped(child, keys, own, within=within or isinstance(child, exp.Query))
