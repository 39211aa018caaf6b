"""Builds pieces of the trees that an aggregate is split into."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.sql.assign import build_type
from millpond.sql.nodes import NEVER_NULL
from millpond.sql.typing import type_of
from millpond.types import Column


def column(view: str, of: Column) -> exp.Column:
    made = exp.Column(
        this=exp.to_identifier(of.name, quoted=True), table=exp.to_identifier(view, quoted=True)
    )
    made.meta["dtype"] = of.type
    return made


def source(view: str) -> exp.From:
    alias = exp.TableAlias(this=exp.to_identifier(view, quoted=True))
    return exp.From(this=exp.Table(this=exp.to_identifier(view), alias=alias))


def named(node: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=node, alias=exp.to_identifier(name, quoted=True))


def cast(node: exp.Expr, dtype: pa.DataType) -> exp.Expr:
    return exp.Cast(this=node, to=build_type(dtype))


def fitted(node: exp.Expr, dtype: pa.DataType | None) -> exp.Expr:
    return node if dtype is None or type_of(node) == dtype else cast(node, dtype)


def double(node: exp.Expr) -> exp.Expr:
    return fitted(node, pa.float64())


def number(value: int, dtype: pa.DataType) -> exp.Expr:
    return cast(exp.Literal.number(value), dtype)


def not_null(node: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=node.copy(), expression=exp.Null()))


def every(*conditions: exp.Expr | None) -> exp.Expr | None:
    given = [exp.Paren(this=c.copy()) for c in conditions if c is not None]
    return exp.and_(*given, copy=False) if given else None


def filtered(function: exp.Expr, condition: exp.Expr | None) -> exp.Expr:
    if condition is None:
        return function
    return exp.Filter(this=function, expression=exp.Where(this=condition.copy()))


def struct(fields: Sequence[tuple[str, exp.Expr]]) -> exp.Struct:
    """Returns a struct of values that are not NULL, to order by."""
    made = exp.Struct(
        expressions=[
            exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=value.copy())
            for name, value in fields
        ]
    )
    made.meta[NEVER_NULL] = True
    return made
