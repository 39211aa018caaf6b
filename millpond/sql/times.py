"""Reads dates and times in text as Spark's CAST reads them.

A date is ``[+-]yyyy[-M[-d]]``, with anything after a blank or a T. A time is the same, with ``[
|T]H[:m[:s[.fraction]]]`` and, after the seconds, a zone: Z, an offset, UTC or GMT with or without one, or the name of a
region. A TIMESTAMP without a date is on the current day.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

_WHITE = "".join(map(chr, range(33))) + "\x7f"
_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_CLOCK = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9.].*)?)?)?"
_TIME = re.compile(
    rf"([+-]?)([0-9]{{4,6}})(?:-([0-9]{{1,2}})(?:-([0-9]{{1,2}})(?:[ T](?:{_CLOCK}))?)?)?", re.DOTALL
)
_ONLY_TIME = re.compile(rf"T(?:{_CLOCK})|(?=[0-9]+:)(?:{_CLOCK})", re.DOTALL)
_OFFSET = re.compile(r"([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")
_SHORT = {
    **{
        "EST": "-05:00",
        "HST": "-10:00",
        "MST": "-07:00",
        "ACT": "Australia/Darwin",
        "AET": "Australia/Sydney",
    },
    **{"AGT": "America/Argentina/Buenos_Aires", "ART": "Africa/Cairo", "AST": "America/Anchorage"},
    **{"BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns"},
    **{"CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris"},
    **{
        "IET": "America/Indiana/Indianapolis",
        "IST": "Asia/Kolkata",
        "JST": "Asia/Tokyo",
        "MIT": "Pacific/Apia",
    },
    **{"NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix"},
    **{"PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal"},
    **{"VST": "Asia/Ho_Chi_Minh"},
}
_EPOCH = date(1970, 1, 1).toordinal()
_CYCLE, _CYCLE_DAYS = 400, 146_097
_MICROS = 1_000_000
_DAY = 86_400 * _MICROS
_LARGEST_DAYS, _LARGEST = 2**31 - 1, 2**63 - 1


def days_of(text: str) -> int | None:
    """Returns the days since 1970 of a date; None if it is invalid."""
    found = _DATE.fullmatch(text.strip(_WHITE))
    return None if found is None else _days(*found.groups()[:4])


def micros_of(text: str, today: int | None = None, *, zoned: bool = True) -> int | None:
    """Returns the microseconds since 1970 of a time; None if it is invalid. ``today``, in days since 1970, is the date
    of a time without one; None refuses such times. If not ``zoned``, a zone is ignored, and a date is required.
    """
    trimmed = text.strip(_WHITE)
    found = _TIME.fullmatch(trimmed)
    if found is not None:
        day, clock = _days(*found.groups()[:4]), found.groups()[4:]
    else:
        found = _ONLY_TIME.fullmatch(trimmed)
        if found is None or today is None or not zoned:
            return None
        parts = found.groups()
        day, clock = today, parts[:5] if trimmed.startswith("T") else parts[5:]
    return None if day is None else _timestamp(day, clock, zoned)


def _days(sign: str | None, year: str | None, month: str | None, day: str | None) -> int | None:
    number = int(f"{sign or ''}{year}")
    # The calendar repeats after 400 years, so years outside Python's range can be computed inside it.
    cycles, within = divmod(number - 1, _CYCLE)
    try:
        days = date(within + 1, int(month or 1), int(day or 1)).toordinal() - _EPOCH + cycles * _CYCLE_DAYS
    except ValueError:
        return None
    return days if abs(days) <= _LARGEST_DAYS else None


def _timestamp(day: int, clock: tuple[str | None, ...], zoned: bool) -> int | None:
    hour, minute, second, fraction, zone = clock
    h, m, s = (int(part or 0) for part in (hour, minute, second))
    if h > 23 or m > 59 or s > 59:
        return None
    micros = ((h * 60 + m) * 60 + s) * _MICROS + int((fraction or "")[:6].ljust(6, "0"))
    timestamp = day * _DAY + micros
    if zone is not None:
        offset = zone_offset(zone.strip(_WHITE), day, micros)
        if offset is None:
            return None
        timestamp -= offset if zoned else 0
    return timestamp if abs(timestamp) <= _LARGEST else None


def zone_offset(name: str, day: int, micros: int) -> int | None:
    """Returns how far a zone is ahead of UTC at a local time, in microseconds; None if there is no such zone."""
    found = _zone(name)
    if found is None or isinstance(found, int):
        return found
    # A region has rules only for the years that Python knows.
    local = datetime(1, 1, 1) + timedelta(days=min(max(day + _EPOCH - 1, 1), 3_652_057), microseconds=micros)
    offset = found.utcoffset(local)
    return None if offset is None else round(offset.total_seconds()) * _MICROS


@lru_cache(maxsize=256)
def _zone(name: str) -> int | ZoneInfo | None:
    """Returns a fixed offset in microseconds, or a region."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return 0
    name = _SHORT.get(name, name)
    for prefix in ("UTC", "GMT", "UT"):
        if name.startswith(prefix) and name[len(prefix) : len(prefix) + 1] in ("+", "-"):
            name = name[len(prefix) :]
            break
    if name[:1] in ("+", "-"):
        return _fixed(re.sub(r"^([+-][0-9]{2}):([0-9])$", r"\1:0\2", name))
    try:
        return ZoneInfo(name) if name and re.fullmatch(r"[A-Za-z][\w/+~-]*", name) else None
    except (ValueError, OSError, KeyError):
        return None


def _fixed(offset: str) -> int | None:
    found = _OFFSET.fullmatch(offset)
    if found is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
    if minutes > 59 or seconds > 59 or hours * 3600 + minutes * 60 + seconds > 18 * 3600:
        return None
    ahead = (hours * 3600 + minutes * 60 + seconds) * _MICROS
    return -ahead if found[1] == "-" else ahead
