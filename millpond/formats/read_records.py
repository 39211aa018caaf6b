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
    """Contains the ``rows`` of the records that could be read and their ``places`` among all; ``rejected`` are the
    others, with ``place``, ``reason``, and the bytes of the record: ``value``, and ``key`` if it is a message with one.
    """

    rows: pa.RecordBatch
    places: pa.Array
    rejected: pa.Table

    def after(self, first: int) -> Received:
        """Returns it with places counted from ``first`` on."""
        rejected = self.rejected.set_column(0, "place", pc.add(self.rejected["place"], first))
        return Received(self.rows, pc.add(self.places, first), rejected)

    def numbered(self, numbers: pa.Array) -> Received:
        """Returns it with the number of each place in place of it."""
        rejected = self.rejected.set_column(0, "place", numbers.take(self.rejected["place"].combine_chunks()))
        return Received(self.rows, numbers.take(self.places), rejected)


class RejectedRecord(NamedTuple):
    """Describes a record that cannot be read; ``place`` is its number among those of its part."""

    place: int
    error: BadData
    value: bytes | None


class Part(NamedTuple):
    """Contains neighbouring records. ``length`` is their number if not each is a row or rejected."""

    rows: pa.RecordBatch
    rejected: Sequence[RejectedRecord] = ()
    length: int | None = None

    @property
    def records(self) -> int:
        return int(self.rows.num_rows) + len(self.rejected) if self.length is None else self.length

    def received(self, first: int) -> Received:
        """Returns it in the form for readers, the first record being number ``first``."""
        count = self.rows.num_rows + len(self.rejected)
        places = np.delete(np.arange(first, first + count), [s.place for s in self.rejected])
        rejected = rejected_table(
            [first + s.place for s in self.rejected],
            [s.error.message for s in self.rejected],
            [s.value for s in self.rejected],
        )
        return Received(self.rows, pa.array(places), rejected)


@cache
def none_rejected() -> pa.Table:
    return rejected_table((), (), ())


def rejected_table(
    places: Sequence[int],
    reasons: Sequence[str],
    values: Iterable[bytes | None],
    keys: Iterable[bytes | None] | None = None,
) -> pa.Table:
    """Returns rejected records, with the bytes of their values, and of their keys if they are messages."""
    return pa.table(
        {
            "place": pa.array(places, pa.int64()),
            "reason": pa.array(reasons, pa.string()),
            "value": pa.array(values, pa.binary()),
            "key": pa.nulls(len(places), pa.binary()) if keys is None else pa.array(keys, pa.binary()),
        }
    )


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
