"""Finds how the values of an aggregate are added and taken back."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.records.retraction import Retraction, floats_back
from millpond.sql.functions.base import Aggregate

_SHARED = ("median", "percentile")


def taken_back(
    function: Aggregate, dtype: pa.DataType | None, *, distinct: bool, share: float | None
) -> Retraction | None:
    """Returns what keeps an aggregate of values of a type; None if it is computed again."""
    if function.retracts is None:
        return None
    if dtype is not None and pa.types.is_floating(dtype):
        found = floats_back(function.name, distinct=distinct)
        if found is not None:
            return found
    named = {} if share is None else {"share": share}
    made: Retraction | None = function.retracts(dtype, distinct=distinct, **named)
    return made


def share_of(function: Aggregate, call: exp.Expr) -> float | None:
    """Returns the share of a percentile; None if it is no number, or for other functions."""
    if function.name not in _SHARED:
        return None
    given = call.args.get("quantile")
    if given is None:
        return 0.5
    return float(given.name) if isinstance(given, exp.Literal) and not given.is_string else None


def as_percentile(call: exp.WithinGroup) -> exp.Quantile | None:
    """Returns PERCENTILE_CONT(…) WITHIN GROUP (ORDER BY …) as PERCENTILE; None for another order or function."""
    order = call.expression.expressions if isinstance(call.expression, exp.Order) else []
    if not isinstance(call.this, exp.PercentileCont) or len(order) != 1 or order[0].args.get("desc"):
        return None
    value = order[0].this if isinstance(order[0], exp.Ordered) else order[0]
    return exp.Quantile(this=value.copy(), quantile=call.this.this.copy())
