"""Orders values as the sorted sets of Redis do, which use doubles."""

from __future__ import annotations

import pyarrow as pa

from millpond.predicates import All, Compare, Predicate
from millpond.types import Column


def scores_of(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Returns the values as the doubles that sorted sets are ordered by."""
    t = pa.types
    if isinstance(values, pa.ChunkedArray):
        parts = [scores_of(chunk) for chunk in values.chunks]
        return pa.concat_arrays(parts) if parts else pa.array([], pa.float64())
    if t.is_timestamp(values.type) or t.is_duration(values.type):
        values = values.view(pa.int64())
    elif t.is_date(values.type):
        values = values.view(pa.int32())
    return values.cast(pa.float64(), safe=False)


def score_text(value: float) -> str:
    return {float("inf"): "+inf", float("-inf"): "-inf"}.get(value) or repr(value)


def score_bounds(where: Predicate, column: Column) -> tuple[str, str] | None:
    """Returns the lowest and the highest score of rows that matter. Scores are rounded alike on both sides, so that
    ends belong to the range; NaN, which is greater than all in SQL, has none.
    """
    low, high = float("-inf"), float("inf")
    found = False
    for part in where.parts if isinstance(where, All) else (where,):
        if not isinstance(part, Compare) or part.column != column.name or part.operator == "!=":
            continue
        score = scores_of(pa.array([part.value], column.type))[0].as_py()
        if part.operator in ("=", ">", ">="):
            low = max(low, score)
        if part.operator in ("=", "<", "<="):
            high = min(high, score)
        found = True
    if not found or (_may_be_nan(column) and high == float("inf")):
        return None
    return score_text(low), score_text(high)


def _may_be_nan(column: Column) -> bool:
    return bool(pa.types.is_floating(column.type))
