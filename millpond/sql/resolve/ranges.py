"""Resolves `range(…)` as an input: the numbers, as a query."""

from __future__ import annotations

from sqlglot import exp

AT_MOST = 1_000
"""The maximum number of values that are written as literals."""


def range_of(node: exp.Table) -> exp.Expr | None:
    """Returns the query of `range(end)`, `range(start, end[, step])`, with its alias; None for anything else, also for
    too many numbers.
    """
    call = node.this
    if not isinstance(call, exp.Anonymous) or call.name.lower() != "range":
        return None
    given = call.expressions
    numbers = [_number(a) for a in given[:3]]
    if not 1 <= len(given) <= 4 or None in numbers:
        return None
    bounds = [n for n in numbers if n is not None]
    if bounds[2:] == [0]:
        return None
    found = range(*bounds)
    if len(found) > AT_MOST:
        return None
    values = exp.Values(expressions=[exp.Tuple(expressions=[_value(n)]) for n in found or [0]])
    alias = exp.TableAlias(this=exp.to_identifier("__r"), columns=[exp.to_identifier("id")])
    values.set("alias", alias)
    select = exp.Select(expressions=[exp.column("id")], from_=exp.From(this=values))
    if not found:
        select.set("where", exp.Where(this=exp.false()))
    made = exp.Subquery(this=select, alias=node.args.get("alias"))
    if node.args.get("joins"):
        made.set("joins", node.args["joins"])
    return made


def _value(number: int) -> exp.Expr:
    literal = exp.Literal.number(abs(number))
    return exp.cast(exp.Neg(this=literal) if number < 0 else literal, "BIGINT")


def _number(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Neg):
        inner = _number(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Paren | exp.Cast):
        return _number(node.this)
    return (
        int(node.this)
        if isinstance(node, exp.Literal) and str(node.this).isdigit() and not node.is_string
        else None
    )
