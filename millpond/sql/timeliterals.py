"""Dates and times written as text that cannot be: told before anything runs.

What is no form of digits is left to Spark, which also knows names of zones and words such as `now`.
"""

from __future__ import annotations

import re
from datetime import date

import pyarrow as pa

_DATE = re.compile(r"\s*([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T](.*))?)?)?\s*", re.DOTALL)
_OTHER_DIGITS = re.compile(r"[0-9/.\s]*")
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?![0-9]))?.*", re.DOTALL)


HINT = "a date is written '2026-01-31', a time '2026-01-31 23:59:59'"


def is_impossible(text: str, dtype: pa.DataType) -> bool:
    """Whether a text of digits names a day, or for times a moment, that there is not."""
    found = _DATE.fullmatch(text)
    if found is None:
        return pa.types.is_date(dtype) and _OTHER_DIGITS.fullmatch(text) is not None
    year, month, day = (int(part) if part else 1 for part in found.groups()[:3])
    try:
        date(year or 4, month, day)
    except ValueError:
        return True
    clock = _CLOCK.fullmatch(found[4]) if found[4] and pa.types.is_timestamp(dtype) else None
    if clock is None:
        return False
    hour, minute, second = (int(part or 0) for part in clock.groups())
    return hour > 23 or minute > 59 or second > 59
