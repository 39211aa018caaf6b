"""Rows by slot number, in blocks of columns.

Rows are only appended, in place: readers look at no slot beyond the end that was published to them, so a block that
is still being filled and one that is full are the same to them. Nothing is merged or copied later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.tables._columns import ColumnStore, bitmap, flags_of, store_of
from millpond.tables._rows import MakeReader, MakeRow, Row, row_maker

Slots = npt.NDArray[np.int64]

SHIFT = 16
SIZE = 1 << SHIFT
MASK = SIZE - 1
_FIRST_CAPACITY = 1024
_KEPT_READERS = 256


class Block:
    """Room for up to 65,536 rows. ``row`` makes the record of one of them; it is replaced when the first NULL of a
    column comes, before readers see that row, and so are the ``readers``, functions that others keep here. ``cells``
    are the single cells by column; those of a ``plain`` block are all there is to a row."""

    __slots__ = ("_make_row", "capacity", "cells", "plain", "readers", "room", "row", "stores", "valid")

    def __init__(
        self, stores: Sequence[ColumnStore], make_row: MakeRow, capacity: int, old: Block | None = None
    ):
        self.stores = stores
        self._make_row = make_row
        self.capacity = capacity
        self.room: list[Any] = [s.room(capacity) for s in stores]
        self.valid: list[npt.NDArray[np.bool_] | None] = [None] * len(stores)
        if old is not None:
            count = old.capacity
            self.room = [s.copied(r, count, capacity) for s, r in zip(stores, old.room, strict=True)]
            for at, flags in enumerate(old.valid):
                if flags is not None:
                    self._allow_nulls(at)[:count] = flags
        self._renew()

    def set_valid(self, column: int, start: int, flags: npt.NDArray[np.bool_]) -> None:
        """Notes which of the cells from ``start`` on are not NULL."""
        valid = self.valid[column]
        if valid is None:
            valid = self._allow_nulls(column)
            self._renew()
        valid[start : start + len(flags)] = flags

    def _allow_nulls(self, column: int) -> npt.NDArray[np.bool_]:
        valid = self.valid[column] = np.ones(self.capacity, dtype=np.bool_)
        return valid

    def _renew(self) -> None:
        self.cells = [s.view(r) for s, r in zip(self.stores, self.room, strict=True)]
        self.row = self._make_row(self.cells, [None if v is None else v.data for v in self.valid])
        self.plain = all(v is None for v in self.valid) and all(s.words == 1 for s in self.stores)
        # Last: a reader that is made of the cells as they were goes into the old dict.
        self.readers: dict[Any, Callable[..., Any]] = {}

    def reader(self, make: MakeReader) -> Callable[..., Any]:
        """The function that ``make`` makes for this block."""
        readers = self.readers
        found = readers.get(make)
        if found is None:
            if len(readers) >= _KEPT_READERS:
                readers.clear()
            valid = [None if v is None else v.data for v in self.valid]
            found = readers[make] = make(self.cells, valid, self.stores)
        return found


_ONE_NULL = np.zeros(1, dtype=np.bool_)


class Blocks:
    """All rows of a table that ever were, until a compaction."""

    def __init__(self, schema: pa.Schema):
        self.schema = schema
        self.stores = [store_of(f.type) for f in schema]
        self._make_row = row_maker(schema.names, self.stores)
        self.blocks: list[Block] = []
        self.room = 0
        """How many slots there is room for."""

    def append(self, first: int, rows: pa.Table) -> None:
        """Writes rows into the slots from ``first`` on, which no reader sees yet."""
        count = rows.num_rows
        if not count:
            return
        self.reserve(first + count)
        for at, (store, column) in enumerate(zip(self.stores, rows.columns, strict=True)):
            slot = first
            for chunk in column.chunks:
                done = 0
                while done < len(chunk):
                    start = slot & MASK
                    part = chunk.slice(done, SIZE - start)
                    block = self.blocks[slot >> SHIFT]
                    store.write(block.room[at], start, part)
                    if store.nulls_apart and (part.null_count or block.valid[at] is not None):
                        flags = flags_of(part.is_valid())
                        block.set_valid(at, start, flags)
                    done += len(part)
                    slot += len(part)

    def put(self, slot: int, cells: Sequence[Any]) -> None:
        """Writes one row of cells, as ``ColumnStore.cell`` makes them, into a slot that no reader sees yet."""
        if slot >= self.room:
            self.reserve(slot + 1)
        block, within = self.blocks[slot >> SHIFT], slot & MASK
        if block.plain and None not in cells:
            for view, cell in zip(block.cells, cells, strict=True):
                view[within] = cell
            return
        for at, (store, cell) in enumerate(zip(self.stores, cells, strict=True)):
            if cell is not None or not store.nulls_apart:
                store.put(block.cells[at], within, cell)
                flags = block.valid[at]
                if flags is not None:
                    flags[within] = True
            else:
                block.set_valid(at, within, _ONE_NULL)

    def cells(self, slot: int) -> list[Any]:
        """The cells of a row, for ``put``."""
        block, within = self.blocks[slot >> SHIFT], slot & MASK
        if block.plain:
            return [view[within] for view in block.cells]
        there = [flags is None or flags[within] for flags in block.valid]
        return [
            store.get(view, within) if is_there else None
            for store, view, is_there in zip(self.stores, block.cells, there, strict=True)
        ]

    def row_of(self, cells: Sequence[Any]) -> pa.Table:
        """One row of cells as Arrow."""
        columns = [store.one(cell) for store, cell in zip(self.stores, cells, strict=True)]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def reserve(self, end: int) -> None:
        """Makes room for the slots below ``end``. A block that grows is replaced; readers of the old one see all
        that is theirs."""
        while end > self.room:
            last = self.blocks[-1] if self.blocks else None
            if last is not None and last.capacity < SIZE:
                more = min(SIZE, max(end, last.capacity * 4))
                self.blocks[-1] = Block(self.stores, self._make_row, more, last)
            else:
                small = last is None and end <= _FIRST_CAPACITY
                capacity = _FIRST_CAPACITY if small else SIZE
                self.blocks.append(Block(self.stores, self._make_row, capacity))
            self.room = ((len(self.blocks) - 1) << SHIFT) + self.blocks[-1].capacity

    def spans(self, end: int) -> list[tuple[int, int]]:
        """The first slot and the slot after the last of each block, of those below ``end``."""
        return [(start, min(start + SIZE, end)) for start in range(0, end, SIZE)]

    def column(self, at: int, start: int, end: int, keep: pa.Array | None = None) -> pa.Array:
        """A column of slots that are all in one block; ``keep`` is a mask over them."""
        array = self._arrow(self.blocks[start >> SHIFT], at, start & MASK, end - (start & ~MASK))
        return self.stores[at].plain(array if keep is None else array.filter(keep))

    def _arrow(self, block: Block, at: int, start: int, end: int) -> pa.Array:
        valid = block.valid[at]
        shown = None if valid is None else valid[start:end]
        bits = None if shown is None or shown.all() else bitmap(shown)
        return self.stores[at].arrow(block.room[at], start, end, bits)

    def between(self, names: Sequence[str], start: int, end: int) -> pa.Table:
        """These columns of the slots from ``start`` up to ``end``."""
        fields = pa.schema([self.schema.field(n) for n in names])
        cuts = [start, *range((start & ~MASK) + SIZE, end, SIZE), end] if end > start else []
        columns = []
        for name in names:
            at = self.schema.get_field_index(name)
            parts = [self.column(at, a, b) for a, b in pairwise(cuts)]
            columns.append(pa.chunked_array(parts, fields.field(name).type))
        return pa.Table.from_arrays(columns, schema=fields)

    def take(self, slots: Slots) -> pa.Table:
        """The rows of these slots, which are in ascending order."""
        return take(self.blocks, slots, range(len(self.stores)), self.schema)

    def records(self, slots: Sequence[int]) -> list[Row]:
        """The records of these slots."""
        blocks = self.blocks
        return [blocks[slot >> SHIFT].row(slot & MASK) for slot in slots]

    def nbytes(self) -> int:
        total = sum(s.nbytes() for s in self.stores)
        for block in self.blocks:
            for room, valid in zip(block.room, block.valid, strict=True):
                total += int(getattr(room, "nbytes", 0)) + (0 if valid is None else int(valid.nbytes))
        return total


def take(blocks: Sequence[Block], slots: Slots, columns: Sequence[int], schema: pa.Schema) -> pa.Table:
    """These columns, by their places and under the names of the schema, of slots in ascending order."""
    if not len(slots):
        return schema.empty_table()
    numbers = slots >> SHIFT
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(slots)]
    picks = [(blocks[int(numbers[start])], slots[start:end] & MASK) for start, end in pairwise(cuts)]
    arrays = []
    for at in columns:
        store = picks[0][0].stores[at]
        valid = None
        if any(block.valid[at] is not None for block, _ in picks):
            flags = [_flags(block.valid[at], inside) for block, inside in picks]
            valid = bitmap(np.concatenate(flags))
        picked = store.pick([(block.room[at], inside) for block, inside in picks], valid)
        arrays.append(store.plain(picked))
    return pa.Table.from_arrays(arrays, schema=schema)


def _flags(valid: npt.NDArray[np.bool_] | None, inside: Slots) -> npt.NDArray[np.bool_]:
    return np.ones(len(inside), dtype=np.bool_) if valid is None else valid[inside]
