"""Tracks how far a table was polled: the last value of a column that grows, and the rows that had it.

A row that comes later with the same value is new; one that was seen is not. So the rows at the last value are
identified by digests of all their columns.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidOption

MANY = 10_000
"""Rows with the last value that are stored one by one; of more of them only the number is stored."""


@dataclass(frozen=True, slots=True)
class HighWaterMark:
    """Contains the last value, and the rows at it: ``ties`` are digests, or None if there are too many of them."""

    value: Any
    count: int
    ties: tuple[str, ...] | None

    def noted(self) -> dict[str, Any]:
        return {
            "value": _noted(self.value),
            "count": self.count,
            "ties": None if self.ties is None else list(self.ties),
        }

    @staticmethod
    def of(offset: Mapping[str, Any]) -> HighWaterMark:
        ties = offset["ties"]
        return HighWaterMark(_value(offset["value"]), offset["count"], None if ties is None else tuple(ties))


def _noted(value: Any) -> list[str] | None:
    """Returns a value of a driver, for JSON."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | datetime | date | str):
        raise InvalidOption(
            f'the values of "incremental.column" are of type {type(value).__name__}',
            hint="it must be a column of times or numbers",
        )
    text = value.isoformat() if isinstance(value, date) else str(value)
    return [type(value).__name__ if not isinstance(value, datetime) else "datetime", text]


_KINDS: Mapping[str, Any] = {
    "int": int,
    "float": float,
    "Decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "str": str,
}


def _value(noted: list[str] | None) -> Any:
    return None if noted is None else _KINDS[noted[0]](noted[1])


def before(value: Any) -> Any:
    """Returns a value right before another one: what is greater than it is that one, or greater."""
    match value:
        case int():
            return value - 1
        case float():
            return math.nextafter(value, -math.inf)
        case Decimal():
            exponent = value.as_tuple().exponent
            return value - Decimal(1).scaleb(min(int(exponent), 0))
        case datetime():
            return value - timedelta(microseconds=1)
        case date():
            return value - timedelta(days=1)
        case _:
            return value[:-1] if isinstance(value, str) else value


def lowest(dtype: pa.DataType, first_day: date) -> Any:
    """Returns a value before all of a type; times begin with a day."""
    if pa.types.is_integer(dtype):
        return -(2 ** (dtype.bit_width - 1))
    if pa.types.is_decimal(dtype):
        return -(Decimal(10) ** (dtype.precision - dtype.scale)) + 1
    if pa.types.is_floating(dtype):
        return -1.7e308
    if pa.types.is_date(dtype):
        return first_day
    return datetime(first_day.year, first_day.month, first_day.day)


def check_column(name: str, dtype: pa.DataType | None) -> None:
    types = pa.types
    if dtype == pa.float32():
        raise InvalidOption(
            f'the column "{name}" of option "incremental.column" has 32-bit floats, which cannot be compared'
            " exactly",
            hint="a column of whole numbers, decimals, times or 64-bit floats",
        )
    if dtype is not None and not (
        types.is_integer(dtype)
        or types.is_decimal(dtype)
        or types.is_floating(dtype)
        or (types.is_temporal(dtype) and not types.is_duration(dtype))
    ):
        raise InvalidOption(
            f'the column "{name}" of option "incremental.column" is a {dtype}',
            hint="it must be a column of times or numbers",
        )


def digests(batch: pa.RecordBatch) -> list[str]:
    """Returns digests that distinguish the rows of a batch."""
    return [
        hashlib.blake2b(repr(row).encode(), digest_size=9).hexdigest()
        for row in zip(*_columns(batch), strict=True)
    ]


def _columns(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    for column in batch.columns:
        yield column.to_pylist()


class Sieve:
    """Filters rows at one value: passes those that are ``among`` some, as often as they are, without the ``seen``."""

    def __init__(self, among: tuple[str, ...] | None, seen: tuple[str, ...] = ()):
        self._among = None if among is None else Counter(among) - Counter(seen)
        self._seen = Counter(seen)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._among is None and not self._seen:
            return batch
        keep = []
        for digest in digests(batch):
            if self._seen[digest]:
                self._seen[digest] -= 1
                keep.append(False)
            elif self._among is None:
                keep.append(True)
            else:
                keep.append(self._among[digest] > 0)
                self._among[digest] -= 1
        return batch.filter(pa.array(keep, pa.bool_()))
