"""A resolved query as Spark SQL text."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.dialect import Millpond
from millpond.sql.rewrite import FOR_SPARK, rewrite
from millpond.types import type_name


def render(query: exp.Expr) -> str:
    return _named(rewrite(query, FOR_SPARK)).sql(dialect=Millpond, comments=False)


def expression(node: exp.Expr) -> str:
    """One expression, as it stands in the tree."""
    return _named(node.copy()).sql(dialect=Millpond, comments=False)


def _named(tree: exp.Expr) -> exp.Expr:
    """Functions of Python under the names that Spark has for them, with arguments of their types."""
    for node in list(tree.find_all(exp.Anonymous)):
        own = node.meta.get("function")
        if own is not None:
            types = (exp.DataType.build(type_name(t), dialect=Millpond) for t in own.arguments)
            given = [exp.Cast(this=a, to=t) for a, t in zip(node.expressions, types, strict=True)]
            node.set("this", own.key)
            node.set("expressions", given)
    return tree
