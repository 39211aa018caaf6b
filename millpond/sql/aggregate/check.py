"""Why an aggregate over a stream cannot be kept live."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from millpond.errors import NotSupported, Place, SqlError
from millpond.sql.aggregate.find import aggregates, call_of, grouping_select
from millpond.sql.grouping import contains_window
from millpond.sql.resolve import Resolved
from millpond.sql.typing import type_of


def is_live_aggregate(resolved: Resolved) -> bool:
    return resolved.running and grouping_select(resolved.expression) is not None


def check_aggregate(
    resolved: Resolved, place: Callable[[exp.Expr], Place | None], at: Place | None
) -> Iterator[SqlError]:
    select = grouping_select(resolved.expression)
    if select is None:
        return
    for node in aggregates(select):
        if type_of(node) is None:
            yield NotSupported(
                f"{call_of(node).name} over a stream is not supported yet: its type is not known",
                place=place(node) or at,
            )
    yield from _check_subqueries(select, place, at)
    for clause in select.expressions:
        if contains_window(clause):
            yield NotSupported(
                "OVER beside an aggregate over a stream: a batch touches only some of the groups",
                hint="keep the aggregate with CREATE TABLE … AS, and use OVER in a query on that table",
                place=place(clause) or at,
            )
    group = select.args.get("group")
    for key in group.expressions if group is not None else ():
        if isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets):
            yield NotSupported("ROLLUP, CUBE and GROUPING SETS over a stream", place=place(key) or at)
        elif type_of(key) is None:
            yield NotSupported("the type of this grouping column is not known", place=place(key) or at)


def _check_subqueries(
    select: exp.Select, place: Callable[[exp.Expr], Place | None], at: Place | None
) -> Iterator[SqlError]:
    """A subquery beside an aggregate sees the groups: of the stream only the columns that are grouped by."""
    having = select.args.get("having")
    group = select.args.get("group")
    keys = group.expressions if group is not None else []
    own = {i.alias_or_name.lower() for i in _items(select)}
    for clause in (*select.expressions, *([having] if having is not None else [])):
        for inner in clause.find_all(exp.Select):
            hidden = {i.alias_or_name.lower() for s in _around(inner, select) for i in _items(s)}
            for column in inner.find_all(exp.Column):
                if column.table.lower() in own - hidden and not _grouped(column, keys, inner):
                    yield SqlError(
                        f'column "{column.name}" in this subquery is not grouped by',
                        hint="add it to GROUP BY, or keep the rows in a table with CREATE TABLE … AS",
                        place=place(column) or at,
                    )


def _grouped(column: exp.Expr, keys: list[exp.Expr], inner: exp.Select) -> bool:
    node: exp.Expr | None = column
    while node is not None and node is not inner:
        if node in keys:
            return True
        node = node.parent
    return False


def _around(inner: exp.Select, until: exp.Select) -> Iterator[exp.Select]:
    node: exp.Expr | None = inner
    while node is not None and node is not until:
        if isinstance(node, exp.Select):
            yield node
        node = node.parent


def _items(select: exp.Select) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this
    for join in select.args.get("joins") or ():
        yield join.this
