"""Rewrites `x > ANY (…)` and `x > ALL (…)` as EXISTS and NOT EXISTS, with SQL's rules for NULL and the empty set."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.rewrite.context import is_filter
from millpond.sql.typing import output_types

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}


def any_all(tree: exp.Expr) -> exp.Expr:
    node: exp.Expr
    for node in reversed(list(tree.find_all(*_COMPARISONS))):
        if isinstance(node.this, exp.Any | exp.All):
            node = _swap(node)
        quantified = node.expression
        if isinstance(quantified, exp.Any | exp.All):
            holds = quantify(node, type(node), quantified.this, every=isinstance(quantified, exp.All))
            node.replace(holds)
    return tree


def _swap(node: exp.Expr) -> exp.Expr:
    mirrored = _MIRRORED[type(node)](this=node.expression, expression=node.this)
    node.replace(mirrored)
    return mirrored


def quantify(node: exp.Expr, comparison: type[exp.Expr], query: exp.Expr, *, every: bool) -> exp.Expr:
    """Rewrites `node.this <comparison> ANY|ALL (query)`. In a filter, NULL is FALSE, and one EXISTS is enough."""
    value = node.this

    def exists(condition: str) -> exp.Expr:
        return _exists(value, comparison, query, condition)

    if is_filter(node):
        return exp.Not(this=exists("not true")) if every else exists("true")
    if every:
        first, outcome, otherwise = exists("false"), exp.false(), exp.true()
    else:
        first, outcome, otherwise = exists("true"), exp.true(), exp.false()
    unknown = exp.Cast(this=exp.Null(), to=exp.DataType.build("BOOLEAN"))
    return exp.Paren(
        this=exp.Case(
            ifs=[exp.If(this=first, true=outcome), exp.If(this=exists("null"), true=unknown)],
            default=otherwise,
        )
    )


def _exists(value: exp.Expr, comparison: type[exp.Expr], query: exp.Expr, condition: str) -> exp.Expr:
    """Returns EXISTS over the rows of the query for which the comparison has the wanted result."""
    query = query.copy()
    while isinstance(query, exp.Subquery) and not query.args.get("alias"):
        query = query.this
    if _plain(query) and not _captures(query, value):
        element = query.expressions[0].unalias()
        select = query
        select.set("expressions", [exp.alias_(exp.Literal.number(1), "one", quoted=True)])
    else:
        alias = exp.TableAlias(
            this=exp.to_identifier("__any", quoted=True), columns=[exp.to_identifier("c", quoted=True)]
        )
        element = exp.Column(
            this=exp.to_identifier("c", quoted=True), table=exp.to_identifier("__any", quoted=True)
        )
        element.meta["dtype"] = next(iter(output_types(query)), None)
        select = exp.Select(
            expressions=[exp.alias_(exp.Literal.number(1), "one", quoted=True)],
            from_=exp.From(this=exp.Subquery(this=query, alias=alias)),
        )
    compared = comparison(this=value.copy(), expression=element)
    test: exp.Expr
    match condition:
        case "true":
            test = compared
        case "false":
            test = exp.Not(this=exp.Paren(this=compared))
        case "null":
            test = exp.Is(this=exp.Paren(this=compared), expression=exp.Null())
        case _:
            test = exp.Not(this=exp.Coalesce(this=compared, expressions=[exp.false()]))
    where = select.args.get("where")
    both = exp.And(this=exp.Paren(this=where.this), expression=test) if where is not None else test
    select.set("where", exp.Where(this=both))
    return exp.Exists(this=select)


def _plain(query: exp.Expr) -> bool:
    """Returns whether it is a SELECT whose WHERE may take one more condition on its column."""
    from millpond.sql.grouping import contains_window, is_aggregated

    return (
        isinstance(query, exp.Select)
        and not is_aggregated(query)
        and not contains_window(query.expressions[0])
        and not any(
            query.args.get(k) for k in ("distinct", "limit", "offset", "with_", "qualify", "laterals")
        )
        and query.args.get("from_") is not None
    )


def _captures(query: exp.Expr, value: exp.Expr) -> bool:
    """Returns whether an alias of the query hides an input that the value names."""
    used = {c.table.lower() for c in value.find_all(exp.Column)}
    from_ = query.args["from_"]
    items = [from_.this, *(j.this for j in query.args.get("joins") or ())]
    return any(i.alias_or_name.lower() in used for i in items)
