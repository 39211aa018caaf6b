"""Dates and times from strings, in the forms that Spark's CAST takes.

``yyyy[-M[-d]]`` for dates, with anything after a blank or a T; for times the same with
``[ |T][H]H:[m]m[:[s]s[.fraction]]`` and a zone: Z, UTC or an offset. Years have four digits.
"""

from __future__ import annotations

import pyarrow as pa

from millpond.sql.render.duckdb.names import text
from millpond.types import TIMESTAMP_NTZ

_DATE = r"^\s*([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?\s*$"
_TIME = (
    r"^\s*([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?)?"
    r"\s*(?:Z|UTC|([+-][0-9]{2}:[0-9]{2}))?)?)?)?\s*$"
)


def _part(sql: str, pattern: str, group: int) -> str:
    """One captured number, 1 when the form ends before it. If nothing matches the year is '' and raises."""
    found = f"regexp_extract({sql}, {text(pattern)}, {group})"
    if group == 1:
        return f"CAST({found} AS INTEGER)"
    return f"CAST(coalesce(nullif({found}, ''), '1') AS INTEGER)"


def date_from_string(sql: str) -> str:
    year, month, day = (_part(sql, _DATE, g) for g in (1, 2, 3))
    return f"make_date({year}, {month}, {day})"


def time_from_string(sql: str, target: pa.DataType) -> str:
    year, month, day = (_part(sql, _TIME, g) for g in (1, 2, 3))
    hour, minute = (_clock(sql, g) for g in (4, 5))
    micros = f"rpad(left(regexp_extract({sql}, {text(_TIME)}, 7), 6), 6, '0')"
    second = f"CAST({_clock(sql, 6)} AS DOUBLE) + CAST({micros} AS INTEGER) / 1e6"
    made = f"make_timestamp({year}, {month}, {day}, {hour}, {minute}, {second})"
    if target == TIMESTAMP_NTZ:
        return made
    zone = f"coalesce(nullif(regexp_extract({sql}, {text(_TIME)}, 8), ''), '+00:00')"
    sign = f"CAST(left({zone}, 1) || '1' AS INTEGER)"
    return f"(CAST({made} AS TIMESTAMPTZ) - {sign} * CAST(substring({zone}, 2) || ':00' AS INTERVAL))"


def _clock(sql: str, group: int) -> str:
    found = f"regexp_extract({sql}, {text(_TIME)}, {group})"
    return f"CAST(coalesce(nullif({found}, ''), '0') AS INTEGER)"
