"""Which expressions can raise on some row.

DuckDB evaluates both sides of a projected AND, and the arguments of an aggregate before its FILTER. Spark stops at
a left side that decides, so where the rest can raise it is put behind a CASE, which DuckDB does not look past.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.typing import type_of
from millpond.sql.typing.coercion import is_numeric

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
    exp.Upper,
    exp.Lower,
    exp.Trim,
    exp.Length,
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
    """Whether evaluating it could fail; true when in doubt."""
    return not all(isinstance(n, _NEVER) or _without_casts(n) for n in node.walk())


def _without_casts(node: exp.Expr) -> bool:
    """Whether the operands are of one type, or all numbers, so that bringing them together cannot fail."""
    if not isinstance(node, _ONE_TYPE) or node.args.get("query") is not None:
        return False
    types = {type_of(n) for n in node.iter_expressions() if not isinstance(n, exp.If | exp.Null)}
    return None not in types and (len(types) <= 1 or all(t is not None and is_numeric(t) for t in types))
