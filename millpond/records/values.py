"""Converts one Python value to one type: returns the value as Arrow takes it, or the reason why it does not fit.

Nothing is rounded, cut or guessed: a value that would lose something is refused. This is the slow and exact path, for
columns that contain anything but the plain values of their type, and to find the bad row.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.types import type_name

_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FRACTION = re.compile(r"[.,](\d{6})(\d+)")


class Unfit(ValueError):
    """Says why a value does not fit."""


def shown(value: object) -> str:
    """Returns the value for a message, cut if long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def exact(value: Any, dtype: pa.DataType) -> Any:
    """Returns the value as ``pa.array(…, dtype)`` takes it without loss; None stays None. Raises Unfit. Leaf types
    only.
    """
    if value is None:
        return None
    return _reader(dtype)(value, dtype)


def _reader(dtype: pa.DataType) -> Callable[[Any, pa.DataType], Any]:
    t = pa.types
    if t.is_boolean(dtype):
        return _boolean
    if t.is_integer(dtype):
        return _integer
    if t.is_floating(dtype):
        return _floating
    if t.is_decimal(dtype):
        return _decimal
    if t.is_string(dtype):
        return _string
    if t.is_binary(dtype):
        return _binary
    if t.is_date(dtype):
        return _date
    if t.is_timestamp(dtype):
        return _timestamp
    if t.is_duration(dtype):
        return _duration
    return _nothing


def _wrong(value: object, dtype: pa.DataType, takes: str) -> Unfit:
    return Unfit(f"{shown(value)} is not a value of type {type_name(dtype)}, which takes {takes}")


def _boolean(value: Any, dtype: pa.DataType) -> bool:
    if type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise _wrong(value, dtype, "true or false")


def _integer(value: Any, dtype: pa.DataType) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _wrong(value, dtype, "an int")
    number = operator.index(value)
    half = 1 << (dtype.bit_width - 1)
    if not -half <= number < half:
        raise Unfit(f"{number} is out of the range of {type_name(dtype)}, {-half} to {half - 1}")
    return number


def _floating(value: Any, dtype: pa.DataType) -> float:
    if isinstance(value, bool) or not (hasattr(value, "__index__") or hasattr(value, "is_integer")):
        raise _wrong(value, dtype, "an int or a float")
    if isinstance(value, Decimal) or type(value).__name__ == "Fraction":
        raise _wrong(value, dtype, "an int or a float")
    whole = hasattr(value, "__index__")
    try:
        number = pa.array([operator.index(value) if whole else float(value)], dtype)[0].as_py()
    except (pa.ArrowInvalid, OverflowError):
        raise Unfit(f"{shown(value)} would lose digits in {type_name(dtype)}") from None
    if abs(number) == float("inf") and abs(value) != float("inf"):
        raise Unfit(f"{shown(value)} is out of the range of {type_name(dtype)}")
    return float(number)


def _decimal(value: Any, dtype: pa.DataType) -> Decimal:
    if isinstance(value, str):
        if not _DECIMAL.fullmatch(value):
            raise Unfit(f"{shown(value)} is not a decimal number")
        number = Decimal(value)
    elif isinstance(value, Decimal):
        number = value
    elif isinstance(value, (bool, float)) or not hasattr(value, "__index__"):
        raise _wrong(value, dtype, "an int, a Decimal or a decimal string")
    else:
        number = Decimal(operator.index(value))
    if not number.is_finite():
        raise Unfit(f"{number} is not a number that {type_name(dtype)} holds")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    lost = -exponent - dtype.scale
    if lost > 0 and any(digits[-lost:] if lost < len(digits) else digits):
        raise Unfit(f"{shown(value)} would lose digits in {type_name(dtype)}")
    if any(digits) and number.adjusted() >= dtype.precision - dtype.scale:
        raise Unfit(f"{shown(value)} is out of the range of {type_name(dtype)}")
    if not any(digits):
        return Decimal(0)
    kept = digits[:-lost] if lost > 0 else digits + (0,) * -lost
    return Decimal((sign, kept, -dtype.scale))


def _string(value: Any, dtype: pa.DataType) -> str:
    if not isinstance(value, str):
        raise _wrong(value, dtype, "a str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unfit(f"{shown(value)} is not valid Unicode text") from None
    return str(value)


def _binary(value: Any, dtype: pa.DataType) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _wrong(value, dtype, "bytes")
    return bytes(value)


def _parsed(value: str, dtype: pa.DataType) -> datetime:
    """Parses ISO text to a datetime, aware if the text has an offset."""
    fraction = _FRACTION.search(value)
    if fraction and fraction[2].strip("0"):
        raise Unfit(f"{shown(value)} would lose digits in {type_name(dtype)}: it keeps microseconds")
    try:
        return datetime.fromisoformat(value.strip())
    except ValueError:
        raise Unfit(f"{shown(value)} is not an ISO date or time for {type_name(dtype)}") from None


def _date(value: Any, dtype: pa.DataType) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if not isinstance(value, (str, datetime)):
        raise _wrong(value, dtype, "a date or ISO text")
    timestamp = _parsed(value, dtype) if isinstance(value, str) else value
    timestamp = _utc(timestamp)
    if timestamp.time() != time():
        raise Unfit(f"{shown(value)} would lose its time of day in DATE")
    return timestamp.date()


def _timestamp(value: Any, dtype: pa.DataType) -> datetime:
    if isinstance(value, date) and not isinstance(value, datetime):
        timestamp = datetime.combine(value, time())
    elif isinstance(value, str):
        timestamp = _parsed(value, dtype)
    elif isinstance(value, datetime):
        if getattr(value, "nanosecond", 0):
            raise Unfit(f"{shown(value)} would lose digits in {type_name(dtype)}: it keeps microseconds")
        timestamp = value
    else:
        raise _wrong(value, dtype, "a datetime or ISO text")
    if dtype.tz is None and timestamp.tzinfo is not None:
        raise Unfit(f"{shown(value)} has a time zone, which TIMESTAMP_NTZ does not keep")
    return _utc(timestamp)


def _utc(timestamp: datetime) -> datetime:
    """Returns it without its zone, in UTC: a naive one is in UTC already."""
    try:
        plain = timestamp if timestamp.tzinfo is None else timestamp.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        raise Unfit(f"{timestamp} is out of range in UTC") from None
    # A pandas Timestamp is a datetime that Arrow reads in its own way.
    return datetime.combine(plain.date(), plain.time())


def _duration(value: Any, dtype: pa.DataType) -> timedelta:
    if not isinstance(value, timedelta):
        raise _wrong(value, dtype, "a timedelta")
    return value


def _nothing(value: Any, dtype: pa.DataType) -> None:
    raise _wrong(value, dtype, "only NULL")
