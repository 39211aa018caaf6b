"""Reports invalid dates and times written as text, before anything runs."""

from __future__ import annotations

import pyarrow as pa

from millpond.sql.times import days_of, micros_of

HINT = "a date is written '2026-01-31', a time '2026-01-31 23:59:59'"
_WORDS = frozenset(("epoch", "now", "today", "tomorrow", "yesterday"))


def is_impossible(text: str, dtype: pa.DataType) -> bool:
    """Returns whether a text is not a valid date, or for times not a valid time, nor a word for one such as `now`."""
    if text.strip().lower().split(" ")[0] in _WORDS:
        return False
    if pa.types.is_date(dtype):
        return days_of(text) is None
    return micros_of(text, 0, zoned=dtype.tz is not None) is None
