"""A resolved query as Spark SQL text."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.dialect import Millpond
from millpond.sql.rewrite import FOR_SPARK, rewrite


def render(query: exp.Expr) -> str:
    return rewrite(query, FOR_SPARK).sql(dialect=Millpond, comments=False)


def expression(node: exp.Expr) -> str:
    """One expression, as it stands in the tree."""
    return node.sql(dialect=Millpond, comments=False)
