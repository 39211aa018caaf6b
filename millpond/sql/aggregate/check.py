"""Checks whether an aggregate over a stream can be maintained live, and says why not."""

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
