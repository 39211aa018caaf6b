"""Rewrites `x NOT IN (SELECT …)` as NOT EXISTS, with SQL's rules for NULL and the empty set.

It holds if there are no rows at all; else if no row has the value, none is NULL, and the value is not NULL.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.aggregate.nodes import column, named, not_null
from millpond.sql.conjuncts import bare, outer_columns
from millpond.sql.incremental.frames import NotKept
from millpond.sql.incremental.subqueries import is_plain
from millpond.sql.rewrite.context import is_filter
from millpond.sql.typing import output_types
from millpond.types import Column

_EMPTY, _ALL_THERE, _SOME_NULL = range(3)


def not_in(tree: exp.Expr) -> exp.Expr:
    for number, node in enumerate(reversed(list(tree.find_all(exp.Not)))):
        inner = bare(node.this)
        if not isinstance(inner, exp.In) or inner.args.get("query") is None:
            continue
        if not is_filter(node, through_or=False):
            raise NotKept("NOT IN (SELECT …) as a value")
        node.replace(_rewritten(inner.this, inner.args["query"], number))
    return tree


def _rewritten(value: exp.Expr, query: exp.Expr, number: int) -> exp.Expr:
    while isinstance(query, exp.Subquery) and not query.args.get("alias"):
        query = query.this
    (dtype, *more) = output_types(query)
    if not more and any(outer_columns(query)) and is_plain(query) and value.find(exp.Query) is None:
        return _correlated(value, query)
    if more or any(outer_columns(query)) or not isinstance(value, exp.Column):
        raise NotKept("NOT IN (SELECT …) of a correlated subquery, or of what is not a column")
    rows, counted = f"__m{number}", f"__n{number}"
    there = exp.Select(
        expressions=[named(exp.Literal.number(1), "one")],
        from_=exp.From(this=_from(query, rows)),
        where=exp.Where(this=exp.EQ(this=value.copy(), expression=column(rows, Column("v", dtype)))),
    )
    every, some = exp.Count(this=exp.Star()), exp.Count(this=column(counted, Column("v", dtype)))
    form = exp.Case(
        ifs=[
            exp.If(this=exp.EQ(this=every.copy(), expression=_number(0)), true=_number(_EMPTY)),
            exp.If(this=exp.EQ(this=every, expression=some), true=_number(_ALL_THERE)),
        ],
        default=_number(_SOME_NULL),
    )
    total = exp.Select(expressions=[named(form, "form")], from_=exp.From(this=_from(query, counted)))
    scalar = exp.Subquery(this=total)
    empty = exp.EQ(this=scalar, expression=_number(_EMPTY))
    complete = exp.EQ(this=scalar.copy(), expression=_number(_ALL_THERE))
    either = exp.Or(this=empty, expression=exp.And(this=complete, expression=not_null(value)))
    return exp.Paren(
        this=exp.And(this=exp.Not(this=exp.Exists(this=there)), expression=exp.Paren(this=either))
    )


def _correlated(value: exp.Expr, query: exp.Select) -> exp.Expr:
    """Returns the test that no row has the value, or NULL, and that there is none if the value is NULL."""
    made = query.copy()
    found = made.expressions[0].unalias()
    sides: list[exp.Expr] = [
        exp.EQ(this=value.copy(), expression=found.copy()),
        exp.Is(this=exp.Paren(this=found.copy()), expression=exp.Null()),
        exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null()),
    ]
    maybe = exp.Paren(this=exp.or_(*sides, copy=False, wrap=False))
    where = made.args.get("where")
    made.set(
        "where",
        exp.Where(
            this=maybe if where is None else exp.And(this=exp.Paren(this=where.this), expression=maybe)
        ),
    )
    made.set("expressions", [named(exp.Literal.number(1), "one")])
    return exp.Not(this=exp.Exists(this=made))


def _from(query: exp.Expr, alias: str) -> exp.Subquery:
    names = [exp.to_identifier("v", quoted=True)]
    return exp.Subquery(
        this=query.copy(), alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=names)
    )


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)
