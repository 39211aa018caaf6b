"""Dates and times written as text that cannot be: told before anything runs."""

from __future__ import annotations

import pyarrow as pa

from millpond.sql.times import days_of, micros_of

HINT = "a date is written '2026-01-31', a time '2026-01-31 23:59:59'"
_WORDS = frozenset(("epoch", "now", "today", "tomorrow", "yesterday"))


def is_impossible(text: str, dtype: pa.DataType) -> bool:
    """Whether a text is no date, or for times no time, and no word for one such as `now`."""
    if text.strip().lower().split(" ")[0] in _WORDS:
        return False
    if pa.types.is_date(dtype):
        return days_of(text) is None
    return micros_of(text, 0, zoned=dtype.tz is not None) is None
