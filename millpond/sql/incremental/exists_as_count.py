"""Rewrites EXISTS and IN (SELECT …) that are a part of a larger condition as a comparison with a count.

`WHERE t.x = 1 OR EXISTS (SELECT 1 FROM u WHERE u.k = t.k)` has no semi join, but a count that is over zero. So does
EXISTS of a query that reads nothing around it: all rows depend on it.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.aggregate.nodes import named
from millpond.sql.conjuncts import outer_columns
from millpond.sql.grouping import is_aggregated
from millpond.sql.incremental.frames import NotKept
from millpond.sql.rewrite.any_all import quantify
from millpond.sql.rewrite.context import is_filter

_MORE = ("limit", "offset", "qualify", "having", "group", "with_", "distinct", "laterals")


def exists_as_count(tree: exp.Expr) -> exp.Expr:
    for node in reversed(list(tree.find_all(exp.In))):
        if node.args.get("query") is None or is_filter(node, through_or=False):
            continue
        if not is_filter(node):
            raise NotKept("IN (SELECT …) as a value")
        node.replace(quantify(node, exp.EQ, node.args["query"], every=False))
    for found in reversed(list(tree.find_all(exp.Exists))):
        test = found.parent if isinstance(found.parent, exp.Not) else found
        alone = isinstance(found.this, exp.Query) and not any(outer_columns(found.this))
        if isinstance(found.this, exp.Query) and (alone or not is_filter(test, through_or=False)):
            found.replace(_counted(found.this))
    return tree


def _counted(query: exp.Expr) -> exp.Expr:
    count = named(exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0)), "there")
    if (
        isinstance(query, exp.Select)
        and not is_aggregated(query)
        and not any(query.args.get(k) for k in _MORE)
    ):
        total = query.copy()
        total.set("expressions", [count])
        total.set("order", None)
    elif any(outer_columns(query)):
        raise NotKept("EXISTS of a correlated subquery that groups or has a LIMIT")
    else:
        alias = exp.TableAlias(this=exp.to_identifier("__e", quoted=True))
        rows = exp.Subquery(this=query.copy(), alias=alias)
        total = exp.Select(expressions=[count], from_=exp.From(this=rows))
    return exp.Subquery(this=total)
