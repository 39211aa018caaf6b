"""Renders dates and times from strings: DuckDB parses the usual form, Python every other form that Spark accepts."""

from __future__ import annotations

import pyarrow as pa

from millpond.sql.render.duckdb.names import DAYS, MICROS, NOW, Unrenderable, once, text
from millpond.sql.times import days_of, micros_of
from millpond.sql.typing.coercion import DATE
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, type_name

_DATE = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}"
_TIME = rf"{_DATE}(?:[ T](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{{1,6}})?Z?)?"
_WORDS = frozenset(("epoch", "now", "today", "tomorrow", "yesterday"))


def date_from_string(sql: str) -> str:
    return once(
        sql,
        lambda s: (
            f"coalesce({_usual(s, _DATE, 'DATE')}, "
            f"DATE '1970-01-01' + coalesce({DAYS}({s}), CAST('not a DATE: ' || {s} AS INTEGER)))"
        ),
    )


def time_from_string(sql: str, target: pa.DataType) -> str:
    zoned = target == TIMESTAMP
    name, make = ("TIMESTAMPTZ", "make_timestamptz") if zoned else ("TIMESTAMP", "make_timestamp")
    today = f"CAST(CAST(getvariable('{NOW}') AS DATE) - DATE '1970-01-01' AS INTEGER)"
    wrong = text(f"not a {type_name(target)}: ")
    return once(
        sql,
        lambda s: (
            f"coalesce({_usual(s, _TIME, name)}, "
            f"{make}(coalesce({MICROS}({s}, {today}, {zoned}), CAST({wrong} || {s} AS BIGINT))))"
        ),
    )


def _usual(sql: str, pattern: str, name: str) -> str:
    """Renders a string of the usual form, parsed by DuckDB; NULL for others, and for invalid days."""
    return f"CASE WHEN regexp_full_match({sql}, {text(pattern)}) THEN TRY_CAST({sql} AS {name}) END"


def written(value: str, target: pa.DataType) -> str | None:
    """Renders a literal date or time; an invalid one raises when the query runs. None for other types."""
    refuse_words(value, target)
    if target == DATE:
        return _written_date(value)
    return _written_time(value, target) if target in (TIMESTAMP, TIMESTAMP_NTZ) else None


def refuse_words(value: str, target: pa.DataType) -> None:
    """Leaves words such as now to Spark."""
    if target in (DATE, TIMESTAMP, TIMESTAMP_NTZ) and value.strip().lower().split(" ")[0] in _WORDS:
        raise Unrenderable("a word for a time")


def _written_date(value: str) -> str:
    days = days_of(value)
    return date_from_string(text(value)) if days is None else f"(DATE '1970-01-01' + CAST({days} AS INTEGER))"


def _written_time(value: str, target: pa.DataType) -> str:
    zoned = target == TIMESTAMP
    micros = micros_of(value, zoned=zoned)
    if micros is None:
        return time_from_string(text(value), target)
    return f"make_timestamp{'tz' if zoned else ''}(CAST({micros} AS BIGINT))"
