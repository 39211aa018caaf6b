"""Rows by slot number in immutable Arrow chunks.

Rows are only appended. Small chunks at the end are merged by sixteens, so that n rows that came one by one
are copied log16(n) times and lie in at most 16 * log16(n) chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Slots = npt.NDArray[np.int64]

_FAN = 16
_LIMITS = (16, 256, 4096, 65536)
_LARGEST = 1 << 18
_MERGED_BYTES = 1 << 28


class Chunks:
    """An immutable sequence of rows; ``append`` answers a new one that shares the chunks."""

    __slots__ = ("batches", "rows", "schema", "sizes", "starts")

    def __init__(
        self, schema: pa.Schema, batches: tuple[pa.RecordBatch, ...] = (), sizes: tuple[int, ...] = ()
    ):
        self.schema = schema
        self.batches = batches
        self.sizes = sizes
        ends = np.cumsum(np.asarray(sizes, dtype=np.int64))
        self.rows = int(ends[-1]) if sizes else 0
        self.starts: Slots = ends - np.asarray(sizes, dtype=np.int64)

    def append(self, rows: pa.Table) -> Chunks:
        if rows.num_rows == 0:
            return self
        if rows.num_rows <= _LARGEST:
            rows = rows.combine_chunks()
        fresh = [b for b in rows.to_batches(max_chunksize=_LARGEST) if b.num_rows]
        batches = [*self.batches, *fresh]
        sizes = [*self.sizes, *(b.num_rows for b in fresh)]
        _merge(batches, sizes)
        return Chunks(self.schema, tuple(batches), tuple(sizes))

    def spans(self) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """First slot, slot after the last, and rows of every chunk."""
        for start, size, batch in zip(self.starts.tolist(), self.sizes, self.batches, strict=True):
            yield start, start + size, batch

    def between(self, names: Sequence[str], start: int, end: int) -> pa.Table:
        """These columns of the slots from ``start`` up to ``end``."""
        wanted = pa.schema([self.schema.field(n) for n in names])
        parts = [
            batch.slice(max(0, start - first), min(end, last) - max(start, first)).select(list(names))
            for first, last, batch in self.spans()
            if last > start and first < end
        ]
        return pa.Table.from_batches(parts, wanted)

    def take(self, slots: Slots) -> pa.Table:
        """The rows of these slots, which are in ascending order."""
        if not len(slots):
            return self.schema.empty_table()
        first = int(np.searchsorted(self.starts, slots[0], side="right")) - 1
        if slots[-1] < self.starts[first] + self.sizes[first]:
            part = self.batches[first].take(pa.array(slots - self.starts[first]))
            return pa.Table.from_batches([part], self.schema)
        cuts = np.searchsorted(slots, self.starts)
        parts = [
            self.batches[at].take(pa.array(slots[start:end] - self.starts[at]))
            for at, (start, end) in enumerate(pairwise([*cuts.tolist(), len(slots)]))
            if start < end
        ]
        return pa.Table.from_batches(parts, self.schema)

    def nbytes(self) -> int:
        return sum(int(b.nbytes) for b in self.batches)


def _merge(batches: list[Any], sizes: list[int]) -> None:
    for limit in _LIMITS:
        first = len(sizes)
        while first and sizes[first - 1] < limit:
            first -= 1
        if len(sizes) - first < _FAN:
            continue
        run = batches[first:]
        if limit > _LIMITS[1] and sum(b.nbytes for b in run) > _MERGED_BYTES:
            return
        merged = pa.Table.from_batches(run).combine_chunks().to_batches()
        batches[first:] = merged
        sizes[first:] = [b.num_rows for b in merged]
