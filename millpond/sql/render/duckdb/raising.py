"""Finds expressions that can raise on some row.

DuckDB evaluates both sides of a projected AND, and the arguments of an aggregate before its FILTER. Spark stops at a
left side that decides. So where the rest can raise, it is placed inside a CASE, which DuckDB evaluates only if needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.sql.functions import by_name
from millpond.sql.render.duckdb.constants import fits, is_safe_constant
from millpond.sql.typing import type_of, widest
from millpond.sql.typing.coercion import (
    DATE,
    DOUBLE,
    FLOATS,
    NULL,
    STRING,
    is_decimal,
    is_integer,
    is_numeric,
)
from millpond.sql.typing.signatures import signatures
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ

_DATETIMES = (DATE, TIMESTAMP, TIMESTAMP_NTZ)

_NEVER = (
    exp.Column,
    exp.Literal,
    exp.Null,
    exp.Boolean,
    exp.Paren,
    exp.Identifier,
    exp.Is,
    exp.Not,
    exp.And,
    exp.Or,
    exp.Like,
    exp.ILike,
    exp.Trim,
    exp.Dot,
    exp.Distinct,
    exp.Order,
    exp.Ordered,
    exp.Star,
)
_ONE_TYPE = (
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.In,
    exp.Between,
    exp.Case,
    exp.If,
    exp.Coalesce,
    exp.Nullif,
    exp.Greatest,
    exp.Least,
)


def may_raise(node: exp.Expr) -> bool:
    """Returns whether evaluating it could fail; true if in doubt."""
    if is_safe_constant(node):
        return False
    safe = isinstance(node, _NEVER) or _harmless(node) or _without_casts(node) or fits(node)
    return not safe or any(may_raise(n) for n in node.iter_expressions())


def _harmless(node: exp.Expr) -> bool:
    """Returns whether it is a call that has a value for every string."""
    row = by_name().get(str(node.this).lower()) if isinstance(node, exp.Anonymous) else None
    if row is None or not row.total:
        return False
    return all(type_of(argument) == STRING for argument in node.expressions)


def _without_casts(node: exp.Expr) -> bool:
    """Returns whether the operands have one type, or are all numbers, so that casting them to a common type
    cannot fail.
    """
    if not isinstance(node, _ONE_TYPE) or node.args.get("query") is not None:
        return False
    types = {type_of(n) for n in node.iter_expressions() if not isinstance(n, exp.If | exp.Null)}
    return None not in types and (len(types) <= 1 or all(t is not None and is_numeric(t) for t in types))


_WIDTHS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def cast_may_raise(source: pa.DataType, target: pa.DataType) -> bool:
    """Returns whether some value of one type cannot be cast to the other."""
    if source in (target, NULL) or target == STRING:
        return False
    if is_integer(source):
        if target in FLOATS:
            return False
        if is_integer(target):
            return _WIDTHS[source] > _WIDTHS[target]
        if is_decimal(target):
            return _WIDTHS[source] > int(target.precision - target.scale)
    if is_decimal(source) and is_decimal(target):
        return bool(source.precision - source.scale > target.precision - target.scale)
    if target == DOUBLE:
        return not is_numeric(source)
    return not (source in _DATETIMES and target in _DATETIMES)


_DIVISIONS = (exp.Div, exp.Mod, exp.IntDiv)
_BINARY = (
    *(exp.Add, exp.Sub, exp.Mul, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
    *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor),
)


def guards(node: exp.Expr) -> list[exp.Expr]:
    """Returns the operands that Spark evaluates before one that can raise: if one of them is NULL, it stops."""
    if is_safe_constant(node):
        return []
    if isinstance(node, exp.Anonymous):
        row = by_name().get(str(node.this).lower())
        order = [] if row is not None and row.eager else list(node.expressions)
    elif isinstance(node, _DIVISIONS):
        order = [node.expression, node.this]
    elif isinstance(node, _BINARY):
        order = [node.this, node.expression]
    else:
        return []
    order = [o for o in order if not isinstance(o, exp.Var | exp.Lambda | exp.Kwarg)]
    if len(order) < 2:
        return []
    targets = _targets(node, order)
    raising = [
        i for i, (o, t) in enumerate(zip(order, targets, strict=True)) if may_raise(o) or _cast_raises(o, t)
    ]
    last = max(raising, default=0)
    return [o for o in order[:last] if not isinstance(o, exp.Literal | exp.Boolean)]


def _targets(node: exp.Expr, order: Sequence[exp.Expr]) -> Sequence[pa.DataType | None]:
    """Returns the types that the operands are cast to; None if unknown."""
    types = [type_of(o) for o in order]
    known = [t for t in types if t is not None]
    if len(known) < len(types):
        return [None] * len(types)
    if isinstance(node, exp.Anonymous):
        signature = signatures().get(str(node.this).upper())
        return [None] * len(types) if signature is None else signature.bind(known)
    common = widest(known)
    # Decimals are cast to a type that can represent both, which never raises.
    return [t if common is not None and is_decimal(common) and t != STRING else common for t in known]


def _cast_raises(node: exp.Expr, target: pa.DataType | None) -> bool:
    source = type_of(node)
    if target is None or source is None:
        return bool(source == STRING)
    return cast_may_raise(source, target)
