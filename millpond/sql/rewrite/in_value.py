"""Rewrites `x IN (SELECT …)` used as a value: Spark returns FALSE where SQL requires NULL."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.rewrite.any_all import quantify
from millpond.sql.rewrite.context import is_filter


def in_value(tree: exp.Expr) -> exp.Expr:
    for node in reversed(list(tree.find_all(exp.In))):
        query = node.args.get("query")
        if query is None or isinstance(node.this, exp.Tuple):
            continue
        negated = isinstance(node.parent, exp.Not)
        # Spark's own NOT IN in a filter follows the rules; under OR, CASE or in SELECT it does not.
        if negated and node.parent is not None and is_filter(node.parent, through_or=False):
            continue
        if not negated and is_filter(node):
            continue
        node.replace(quantify(node, exp.EQ, query, every=False))
    return tree
