"""Reads EXISTS, NOT EXISTS and IN (SELECT …) as joins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

from sqlglot import exp

from millpond.sql.conjuncts import bare, conjuncts, disjuncts
from millpond.sql.grouping import is_aggregated
from millpond.sql.incremental.frames import NotKept
from millpond.sql.incremental.nodes import JoinKind
from millpond.sql.running_queries import from_items

_MORE = ("limit", "offset", "qualify", "having", "group", "with_", "distinct")


@dataclass(frozen=True, slots=True)
class Membership:
    """Describes a condition that rows of ``select`` exist, or not; they are those of its FROM for which ``conditions``
    hold, which may name columns of the query around it.
    """

    kind: JoinKind
    select: exp.Select
    conditions: tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True)
class Values:
    """Describes the condition that ``value`` is one of the values of ``query``, which reads nothing around it."""

    value: exp.Expr
    query: exp.Expr


def membership(condition: exp.Expr) -> Membership | Values | None:
    """Returns the join that a condition is; None for one without a subquery."""
    if condition.find(exp.Query) is None:
        return None
    condition = bare(condition)
    negated = isinstance(condition, exp.Not)
    inner = bare(condition.this) if negated else condition
    if isinstance(inner, exp.Exists):
        select = _select(inner.this)
        return Membership("anti" if negated else "semi", select, tuple(_where(select)))
    if isinstance(inner, exp.In) and not negated and inner.args.get("query") is not None:
        # NULL in a positive IN is the same as FALSE, as in the condition of a join.
        query = inner.args["query"]
        while isinstance(query, exp.Subquery | exp.Paren):
            query = query.this
        if not is_plain(query):
            return Values(inner.this, query)
        if len(query.expressions) == 1 and inner.this.find(exp.Query) is None:
            equal = exp.EQ(this=inner.this.copy(), expression=query.expressions[0].unalias().copy())
            return Membership("semi", query, (equal, *_where(query)))
    raise NotKept("a subquery in a condition")


def factored(condition: exp.Expr) -> list[exp.Expr]:
    """Returns the conditions that all sides of OR have in common: they hold, too."""
    sides = list(disjuncts(condition))
    if len(sides) < 2:
        return []
    first, *others = ([*conjuncts(side)] for side in sides)
    return [c for c in first if all(any(c == o for o in other) for other in others)]


def is_plain(query: exp.Expr) -> TypeGuard[exp.Select]:
    """Returns whether a query has rows of its inputs, which conditions can be added to."""
    return (
        isinstance(query, exp.Select)
        and not is_aggregated(query)
        and not any(query.args.get(k) for k in _MORE)
        and bool(list(from_items(query)))
    )


def _select(query: exp.Expr) -> exp.Select:
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    if not isinstance(query, exp.Select) or not is_plain(query):
        raise NotKept("a subquery in a condition")
    return query


def _where(select: exp.Select) -> Iterator[exp.Expr]:
    where = select.args.get("where")
    if where is not None:
        yield from conjuncts(where.this)
