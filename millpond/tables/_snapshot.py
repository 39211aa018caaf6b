"""A memory table as it was after one commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.changes import ROW
from millpond.errors import NotSupported, UnknownName, did_you_mean
from millpond.tables._chunks import Chunks, Slots
from millpond.tables._keys import lookup_list
from millpond.tables._versions import Generation, Mark
from millpond.tables.base import Snapshot
from millpond.types import Column, Schema


class MemorySnapshot(Snapshot):
    """Immutable, but for what it remembers of its own answers. Holding it keeps its rows in memory."""

    def __init__(
        self,
        schema: Schema,
        key: tuple[str, ...],
        generation: Generation,
        chunks: Chunks,
        died: Slots,
        mark: Mark,
        marks: tuple[Mark, ...],
    ):
        self.schema = schema
        self.chunks = chunks
        self.mark = mark
        self.version = mark.version
        self._key = key
        self._generation = generation
        self._died = died
        self._marks = marks
        self._masks: list[pa.Array | None] | None = None
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._scans: dict[tuple[str, ...], pa.Table] = {}

    def as_of(self, commit: int) -> MemorySnapshot:
        """The table after the newest commit up to this one. Raises ValueError if it is no longer kept."""
        for mark in reversed(self._marks):
            if mark.commit <= commit:
                if mark is self.mark:
                    return self
                return MemorySnapshot(
                    self.schema, self._key, self._generation, self.chunks, self._died, mark, self._marks
                )
        raise ValueError(f"commit {commit} is no longer kept; the oldest is {self._marks[0].commit}")

    def __len__(self) -> int:
        return self.mark.alive

    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        """As Snapshot.get, in the order of the rows; the key is found in its index, others in one made for
        them.
        """
        asked = [self._column(name) for name in columns]
        if len(asked) != keys.num_columns or not asked:
            raise ValueError(f"{len(asked)} columns, but {keys.num_columns} columns of keys")
        names = [c.name for c in asked]
        order = self._key if set(names) == set(self._key) else tuple(sorted(set(names)))
        if len(order) != len(names):
            raise ValueError("a column is asked for twice")
        at = [names.index(name) for name in order]
        wanted = lookup_list([asked[i].type for i in at], keys.select(at), nulls)
        end = self.mark.slots
        if order == self._key:
            slots = self._generation.slots_before(wanted, end)
        else:
            slots = self._generation.index_on(order).find(wanted, self.chunks, end)
            slots = slots[slots < end]
        slots = np.sort(slots[self._died[slots] > self.mark.version])
        found = self.chunks.take(slots)
        if rows:
            self._no_key()
            found = found.append_column(ROW, pa.array(self._generation.numbers.of(slots)))
        return found

    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        names = self.schema.names if columns is None else tuple(self._column(c).name for c in columns)
        if rows:
            self._no_key()
        asked = (*names, ROW) if rows else names
        table = self._scans.get(asked)
        if table is None:
            fields = [self.chunks.schema.field(n) for n in names]
            arrays = [self._visible(n) for n in names]
            if rows:
                fields.append(pa.field(ROW, pa.int64()))
                arrays.append(pa.chunked_array([pa.array(self._row_numbers())]))
            table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
            order = self._order()
            if order is not None and names:
                table = table.take(order)
            table = self._scans.setdefault(asked, table)
        return table

    def _no_key(self) -> None:
        if self._key:
            raise NotSupported("the rows of a table with a primary key are known by it: they have no numbers")

    def _row_numbers(self) -> Slots:
        """The number of each row, in the order of the slots."""
        seen = np.flatnonzero(self._died[: self.mark.slots] > self.mark.version)
        return self._generation.numbers.of(seen)

    def _order(self) -> pa.Array | None:
        """The order of the rows of a table without a key, if it is not that of the slots."""
        if self._key or self._generation.numbers.ordered:
            return None
        numbers = self._row_numbers()
        if (numbers[1:] > numbers[:-1]).all():
            return None
        return pa.array(np.argsort(numbers, kind="stable"))

    def stats(self) -> dict[str, Any]:
        return {
            "rows": self.mark.alive,
            "bytes": self.chunks.nbytes() + self._died.nbytes + self._generation.replaced.nbytes,
            "dead": self.mark.slots - self.mark.alive,
            "chunks": len(self.chunks.batches),
            "indexes": [list(columns) for columns in self._generation.indexes()],
        }

    def _visible(self, name: str) -> pa.ChunkedArray:
        """The column of the rows that are seen; chunks without a dead row are not copied."""
        found = self._columns.get(name)
        if found is None:
            if self._masks is None:
                self._masks = [self._mask(start, end) for start, end, _ in self.chunks.spans()]
            at = self.chunks.schema.get_field_index(name)
            parts = [
                batch.column(at) if mask is None else batch.column(at).filter(mask)
                for batch, mask in zip(self.chunks.batches, self._masks, strict=True)
            ]
            parts = [p for p in parts if len(p)]
            found = pa.chunked_array(parts, self.chunks.schema.field(at).type)
            found = self._columns.setdefault(name, found)
        return found

    def _mask(self, start: int, end: int) -> pa.Array | None:
        seen = self._died[start:end] > self.mark.version
        if end > self.mark.slots:
            seen[max(0, self.mark.slots - start) :] = False
        return None if seen.all() else pa.array(seen)

    def _column(self, name: str) -> Column:
        found = self.schema.find(name)
        if found is None:
            raise UnknownName(
                f'column "{name}" is not in the table', hint=did_you_mean(name, self.schema.names)
            )
        return found
