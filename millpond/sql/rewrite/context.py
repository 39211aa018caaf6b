"""Finds whether NULL and FALSE mean the same in the place of an expression."""

from __future__ import annotations

from sqlglot import exp


def is_filter(node: exp.Expr, *, through_or: bool = True) -> bool:
    """Returns whether the node decides a filter, where NULL counts as FALSE.

    Only AND, OR (if ``through_or``) and parentheses may be between the node and the filter. Without ``through_or``, the
    condition of an outer join, which excludes no row, is not a filter.
    """
    child, parent = node, node.parent
    while isinstance(parent, exp.And | exp.Paren) or (through_or and isinstance(parent, exp.Or)):
        child, parent = parent, parent.parent
    if isinstance(parent, exp.Where | exp.Having | exp.Qualify):
        return True
    if isinstance(parent, exp.Join):
        return parent.args.get("on") is child and (through_or or not parent.side)
    if isinstance(parent, exp.If) and through_or:
        searched = not (isinstance(parent.parent, exp.Case) and parent.parent.args.get("this") is not None)
        return searched and parent.this is child
    return False
