"""Separates the records that were read from error records, which have their place, the reason and the record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import BadData

_ONE_BY_ONE = 8
"""Records among which bad ones are searched without halving."""


class Received(NamedTuple):
    """Contains the ``rows`` of the records that could be read and their ``places`` among all; ``spoiled`` are the
    others, with ``place``, ``reason`` and ``value``, the record as text.
    """

    rows: pa.RecordBatch
    places: pa.Array
    spoiled: pa.Table

    def after(self, first: int) -> Received:
        """Returns it with places counted from ``first`` on."""
        aside = self.spoiled.set_column(0, "place", pc.add(self.spoiled["place"], first))
        return Received(self.rows, pc.add(self.places, first), aside)


class Spoiled(NamedTuple):
    """Describes a record that cannot be read; ``place`` is its number among those of its part."""

    place: int
    error: BadData
    value: bytes | None


class Part(NamedTuple):
    """Contains neighbouring records. ``length`` is their number if not each is a row or spoiled."""

    rows: pa.RecordBatch
    spoiled: Sequence[Spoiled] = ()
    length: int | None = None

    @property
    def records(self) -> int:
        return int(self.rows.num_rows) + len(self.spoiled) if self.length is None else self.length

    def received(self, first: int) -> Received:
        """Returns it in the form for readers, the first record being number ``first``."""
        count = self.rows.num_rows + len(self.spoiled)
        places = np.delete(np.arange(first, first + count), [s.place for s in self.spoiled])
        spoiled = spoiled_table(
            [first + s.place for s in self.spoiled],
            [s.error.message for s in self.spoiled],
            [s.value for s in self.spoiled],
        )
        return Received(self.rows, pa.array(places), spoiled)


@cache
def none_spoiled() -> pa.Table:
    return spoiled_table((), (), ())


def spoiled_table(places: Sequence[int], reasons: Sequence[str], values: Iterable[bytes | None]) -> pa.Table:
    return pa.table(
        {
            "place": pa.array(places, pa.int64()),
            "reason": pa.array(reasons, pa.string()),
            "value": pa.array([shown(v) for v in values], pa.string()),
        }
    )


def shown(value: bytes | None) -> str | None:
    """Returns a record as text; its bytes in hexadecimal digits if it is not text."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def bad_places(count: int, is_fine: Callable[[int, int], bool]) -> list[int]:
    """Returns which of ``count`` things are bad, by halving; ``is_fine(a, b)`` says whether those from a to before b
    are good.
    """
    found: list[int] = []
    ranges = [(0, count)]
    while ranges:
        begin, end = ranges.pop()
        if begin == end or is_fine(begin, end):
            continue
        if end - begin == 1:
            found.append(begin)
            continue
        step = 1 if end - begin <= _ONE_BY_ONE else (end - begin + 1) // 2
        ranges += reversed([(at, min(at + step, end)) for at in range(begin, end, step)])
    return found


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
