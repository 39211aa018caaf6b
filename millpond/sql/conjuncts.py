"""Splits conditions into parts, and finds whose columns an expression reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.sql.typing import type_of

Leaf = Callable[[exp.Column], exp.Expr]


def bare(node: exp.Expr) -> exp.Expr:
    """Returns the expression without parentheses. (``unnest`` would also open a subquery.)"""
    while type(node) is exp.Paren:
        node = node.this
    return node


def conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the operands of AND."""
    return _operands(condition, exp.And)


def disjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the operands of OR."""
    return _operands(condition, exp.Or)


def _operands(condition: exp.Expr, kind: type[exp.And | exp.Or]) -> Iterator[exp.Expr]:
    condition = bare(condition)
    if isinstance(condition, kind):
        yield from _operands(condition.left, kind)
        yield from _operands(condition.right, kind)
    else:
        yield condition


def all_of(conditions: list[exp.Expr]) -> exp.Expr | None:
    """Joins the conditions with AND; None if there are none."""
    return exp.and_(*[c.copy() for c in conditions], copy=False) if conditions else None


def compared_alike(column: exp.Expr, value: exp.Expr) -> bool:
    """Returns whether an index compares as Spark does: equal types, or integers of any width."""
    a, b = type_of(column), type_of(value)
    if a is None or b is None:
        return False
    return a == b or bool(pa.types.is_integer(a) and pa.types.is_integer(b))


def outer_columns(node: exp.Expr, hidden: frozenset[str] = frozenset()) -> Iterator[exp.Column]:
    """Yields the columns of an expression that do not belong to a query inside it."""
    if isinstance(node, exp.Column):
        if node.table.lower() not in hidden:
            yield node
        return
    hidden = hidden | _own_aliases(node)
    for child in node.iter_expressions():
        yield from outer_columns(child, hidden)


def replace_columns(node: exp.Expr, leaf: Leaf, hidden: frozenset[str] = frozenset()) -> exp.Expr:
    """Returns a copy with ``leaf`` applied to every column that does not belong to a query inside the expression."""
    if isinstance(node, exp.Column):
        return node.copy() if node.table.lower() in hidden else leaf(node)
    made = node.copy()
    hidden = hidden | _own_aliases(node)
    for key, value in list(made.args.items()):
        if isinstance(value, exp.Expr):
            made.set(key, replace_columns(value, leaf, hidden))
        elif isinstance(value, list):
            made.set(key, [replace_columns(v, leaf, hidden) if isinstance(v, exp.Expr) else v for v in value])
    return made


def _own_aliases(node: exp.Expr) -> frozenset[str]:
    if not isinstance(node, exp.Select):
        return frozenset()
    from_ = node.args.get("from_")
    items = [from_.this] if from_ is not None else []
    items += [j.this for j in node.args.get("joins") or ()]
    return frozenset(i.alias_or_name.lower() for i in items)
