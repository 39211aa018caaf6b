"""Splits a live aggregate, a query that groups a stream, into three queries and a few hidden tables.

Each function is either merged from a few values of its parts (`parts.py`) or read from the values of its group
(`values.py`). The state is stored in tables keyed by the grouping columns, so a batch costs only what it touches.
"""

from __future__ import annotations

from millpond.sql.aggregate.check import check_aggregate, is_live_aggregate
from millpond.sql.aggregate.distinct import lower_distinct
from millpond.sql.aggregate.final import plain_columns
from millpond.sql.aggregate.model import (
    COUNT,
    FRESH,
    MERGED,
    PARTIAL,
    ROWS,
    SEQUENCE,
    Aggregation,
    Kept,
    WindowKey,
)
from millpond.sql.aggregate.split import split

__all__ = [
    "COUNT",
    "FRESH",
    "MERGED",
    "PARTIAL",
    "ROWS",
    "SEQUENCE",
    "Aggregation",
    "Kept",
    "WindowKey",
    "check_aggregate",
    "is_live_aggregate",
    "lower_distinct",
    "plain_columns",
    "split",
]
