"""Rewrites an ordered list for Spark, whose COLLECT_LIST has no order: the order is collected with the values."""

from __future__ import annotations

from sqlglot import exp


def ordered_list(tree: exp.Expr) -> exp.Expr:
    for node in list(tree.find_all(exp.ArrayAgg)):
        if isinstance(node.this, exp.Order):
            made = _collected(node.this)
            if node is tree:
                return made
            node.replace(made)
    return tree


def _collected(order: exp.Order) -> exp.Expr:
    """Collects in ascending order; no other order is used."""
    keys = [(f"o{i}", o.this) for i, o in enumerate(order.expressions)]
    fields = [
        exp.PropertyEQ(this=exp.to_identifier(name), expression=value.copy())
        for name, value in (*keys, ("v", order.this))
    ]
    collected = exp.ArraySort(this=exp.ArrayAgg(this=exp.Struct(expressions=fields)))
    value = exp.Dot(this=exp.to_identifier("e"), expression=exp.to_identifier("v"))
    return exp.Transform(
        this=collected, expression=exp.Lambda(this=value, expressions=[exp.to_identifier("e")])
    )
