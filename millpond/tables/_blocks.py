"""Stores rows by slot number, in blocks of columns.

Rows are only appended, in place: readers access no slot beyond the end that was published to them, so a partly filled
block and a full one are the same to them. Nothing is merged or copied later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.records.outgoing import to_rows
from millpond.tables._block import MASK, SHIFT, SIZE, Block, Cells
from millpond.tables._cold import Cold, Copies
from millpond.tables._columns import Coded, ColumnStore, Pieces, bitmap, store_of
from millpond.tables._rows import Row, row_maker, rows_maker

__all__ = ["MASK", "SHIFT", "SIZE", "Block", "Blocks", "Cold", "Slots", "take"]

Slots = npt.NDArray[np.int64]
Source: TypeAlias = "int | tuple[int, pa.DataType] | pa.Array"
"""Where a column comes from: the place of another one, an array with its one value, or a place and another type."""

_FIRST_CAPACITY = 1024
_FEW = 16
"""Up to this many rows are faster to read one by one."""
_ONE_NULL = np.zeros(1, dtype=np.bool_)


class Blocks:
    """Stores all rows that a table ever had, until a compaction.

    With ``copies`` each block has its own stores, so that everything in it can be moved to disk and back. ``filled`` is
    called when a block becomes full while rows are added.
    """

    def __init__(
        self,
        schema: pa.Schema,
        copies: Copies | None = None,
        filled: Callable[[Blocks], None] | None = None,
    ):
        self.schema = schema
        self._copies = copies
        self._filled = filled
        self._stores = [store_of(f.type) for f in schema]
        self._make_row = row_maker(schema.names, self._stores)
        self._make_rows = rows_maker(schema.names, self._stores)
        self.blocks: list[Block | Cold] = []
        self.room = 0
        """The number of slots that are allocated."""

    def reshaped(self, schema: pa.Schema, columns: Sequence[Source], end: int) -> Blocks:
        """Returns blocks of the same rows, in the slots below ``end``, with other columns: each is one of these, by its
        place, which they then have in common; or a new one that all rows have a value of, or NULL; or one of these with
        another type. Only cast columns are written for every row: full blocks, which nobody writes to any more, have
        the same cells of a new column. No block is on disk, and nobody writes to these any more.
        """
        made = Blocks(schema)
        made._stores = [
            self._stores[c] if isinstance(c, int) else store_of(f.type)
            for f, c in zip(schema, columns, strict=True)
        ]
        made._make_row = row_maker(schema.names, made._stores)
        made._make_rows = rows_maker(schema.names, made._stores)
        full = end >> SHIFT
        shared = [
            _repeated(s, c, SIZE) if isinstance(c, pa.Array) and full else None
            for s, c in zip(made._stores, columns, strict=True)
        ]
        for number, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            cells = [
                known if known is not None and number < full else _cells(block, s, c)
                for s, c, known in zip(made._stores, columns, shared, strict=True)
            ]
            made.blocks.append(Block(made._stores, made._make_row, block.capacity, cells=cells))
        made.room = self.room
        return made

    def append(self, first: int, rows: pa.Table) -> None:
        """Writes rows to the slots from ``first`` on, which no reader sees yet."""
        done, count = 0, rows.num_rows
        while done < count:
            slot = first + done
            part = rows.slice(done, SIZE - (slot & MASK)) if done or count > SIZE - (slot & MASK) else rows
            self.reserve(slot + part.num_rows)
            self._to_write(slot).write(slot & MASK, part)
            done += part.num_rows
            if self._filled is not None and done < count:
                self._filled(self)

    def put(self, slot: int, values: Sequence[Any]) -> None:
        """Writes one row of raw values to a slot that no reader sees yet."""
        if slot >= self.room:
            self.reserve(slot + 1)
        block, within = self.blocks[slot >> SHIFT], slot & MASK
        if block.plain and None not in values:
            for store, view, value in zip(block.stores, block.cells, values, strict=True):
                if type(value) is str:
                    store.put(view, within, value)
                else:
                    view[within] = value
            return
        block = self._to_write(slot)
        for at, (store, value) in enumerate(zip(block.stores, values, strict=True)):
            if value is not None or not store.nulls_apart:
                store.put(block.cells[at], within, value)
                flags = block.valid[at]
                if flags is not None:
                    flags[within] = True
            else:
                block.set_valid(at, within, _ONE_NULL)

    def cells(self, slot: int) -> list[Any]:
        """Returns the raw values of a row, for ``put``."""
        block, within = self.blocks[slot >> SHIFT], slot & MASK
        there = [flags is None or flags[within] for flags in block.valid]
        return [
            store.get(view, within) if is_there else None
            for store, view, is_there in zip(block.stores, block.cells, there, strict=True)
        ]

    def record(self, slot: int) -> Row:
        """Returns one row."""
        return self.blocks[slot >> SHIFT].row(slot & MASK)

    def row_of(self, values: Sequence[Any]) -> pa.Table:
        """Returns one row of raw values as Arrow."""
        columns = [store.one(value) for store, value in zip(self._stores, values, strict=True)]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def reserve(self, end: int) -> None:
        """Allocates the slots below ``end``. A block that grows is replaced; readers of the old one see all that is
        theirs.
        """
        while end > self.room:
            last = self.blocks[-1] if self.blocks else None
            if last is not None and last.capacity < SIZE:
                assert isinstance(last, Block)
                more = min(SIZE, max(end, last.capacity * 4))
                self.blocks[-1] = Block(last.stores, self._make_row, more, last)
            else:
                small = last is None and end <= _FIRST_CAPACITY
                stores = self._stores if self._copies is None else [store_of(f.type) for f in self.schema]
                self.blocks.append(Block(stores, self._make_row, _FIRST_CAPACITY if small else SIZE))
            self.room = ((len(self.blocks) - 1) << SHIFT) + self.blocks[-1].capacity

    def cells_for(self, end: int) -> int:
        """Returns the bytes of the cells of blocks that the slots below ``end`` need and that are not allocated yet."""
        last = next((b for b in reversed(self.blocks) if isinstance(b, Block)), None)
        if last is None or end <= self.room:
            return 0
        blocks = (end + MASK >> SHIFT) - len(self.blocks)
        return max(blocks, 1) * (last.nbytes() * SIZE // last.capacity)

    def _to_write(self, slot: int) -> Block:
        """Returns the block of a slot. One on disk is loaded again: rows that were never visible are overwritten."""
        number = slot >> SHIFT
        block = self.blocks[number]
        if isinstance(block, Cold):
            block = self.blocks[number] = block.thawed()
        return block

    def spill(self, end: int) -> int:
        """Moves the oldest full block of the slots below ``end`` to disk; returns its bytes, 0 if there is none.
        Readers of the old one continue to use it. Raises OSError, and nothing has changed.
        """
        assert self._copies is not None
        for number in range(min(len(self.blocks), end >> SHIFT)):
            block = self.blocks[number]
            if isinstance(block, Block):
                self.blocks[number] = Cold(block, self.schema, self._copies)
                return block.nbytes(with_stores=True)
        return 0

    @property
    def spills(self) -> bool:
        """Returns whether blocks may be moved to disk."""
        return self._copies is not None

    @property
    def spilled_bytes(self) -> int:
        return sum(b.size for b in list(self.blocks) if isinstance(b, Cold))

    def spans(self, end: int) -> list[tuple[int, int]]:
        """Returns the first slot and the slot after the last of each block, of those below ``end``."""
        return [(start, min(start + SIZE, end)) for start in range(0, end, SIZE)]

    def column(self, at: int, start: int, end: int, keep: pa.Array | None = None) -> pa.Array:
        """Returns a column of slots that are all in one block; ``keep`` is a mask over them."""
        return self.blocks[start >> SHIFT].column(at, start & MASK, end - (start & ~MASK), keep)

    def between(self, names: Sequence[str], start: int, end: int) -> pa.Table:
        """Returns these columns of the slots from ``start`` up to ``end``."""
        fields = pa.schema([self.schema.field(n) for n in names])
        cuts = [start, *range((start & ~MASK) + SIZE, end, SIZE), end] if end > start else []
        columns = []
        for name in names:
            at = self.schema.get_field_index(name)
            parts = [self.column(at, a, b) for a, b in pairwise(cuts)]
            columns.append(pa.chunked_array(parts, fields.field(name).type))
        return pa.Table.from_arrays(columns, schema=fields)

    def take(self, slots: Slots) -> pa.Table:
        """Returns the rows of these slots, which are in ascending order."""
        return take(self.blocks, slots, range(len(self.schema)), self.schema)

    def records(self, slots: Sequence[int] | Slots) -> list[Row]:
        """Returns the records of these slots: few in their order, many in ascending order, column by column, so that
        many cells are loaded from memory at once.
        """
        blocks = self.blocks
        if len(slots) <= _FEW:
            return [blocks[slot >> SHIFT].row(slot & MASK) for slot in slots]
        ordered = np.sort(np.asarray(slots, dtype=np.int64))
        make = self._make_rows
        if make is None:
            return to_rows(self.take(ordered))
        found: list[Row] = []
        for block, inside in _parts(blocks, ordered):
            raw = [room[inside].tolist() for room in block.room]
            cells = [
                store.texts.texts(codes) if isinstance(store, Coded) else codes
                for store, codes in zip(block.stores, raw, strict=True)
            ]
            valid = [None if flags is None else flags[inside].tolist() for flags in block.valid]
            found += make(cells, valid)
        return found

    def nbytes(self) -> int:
        """Returns the bytes of the blocks that are in memory."""
        hot = [b for b in list(self.blocks) if isinstance(b, Block)]
        if self._copies is not None:
            return sum(b.nbytes(with_stores=True) for b in hot) + self._copies.nbytes()
        shared = {id(x): int(x.nbytes) for b in hot for x in (*b.room, *b.valid) if x is not None}
        return sum(shared.values()) + sum(s.nbytes() for s in self._stores)


def _cells(block: Block, store: ColumnStore, source: Source) -> Cells:
    if isinstance(source, int):
        return block.room[source], block.valid[source]
    if isinstance(source, pa.Array):
        return _repeated(store, source, block.capacity)
    room = store.room(block.capacity)
    at, dtype = source
    store.write(room, 0, block.column(at, 0, block.capacity).cast(dtype))
    return room, block.valid[at]


def _repeated(store: ColumnStore, value: pa.Array, capacity: int) -> Cells:
    """Returns cells that all have one value."""
    room = store.room(capacity)
    if isinstance(store, Pieces):
        store.write(room, 0, pa.repeat(value[0], capacity))
        return room, None
    if value[0].is_valid:
        store.write(room, 0, value)
        room.reshape(-1, store.words)[1:] = room[: store.words]
        return room, None
    return room, np.zeros(capacity, dtype=np.bool_) if store.nulls_apart else None


def take(blocks: Sequence[Block | Cold], slots: Slots, columns: Sequence[int], schema: pa.Schema) -> pa.Table:
    """Returns these columns, by their places and under the names of the schema, of slots in ascending order."""
    if not len(slots):
        return schema.empty_table()
    picks = _parts(blocks, slots)
    arrays = []
    if any(block.stores is not picks[0][0].stores for block, _ in picks if isinstance(block, Block)) or any(
        isinstance(block, Cold) for block, _ in picks
    ):
        for at in columns:
            parts = [_picked(block, at, inside) for block, inside in picks]
            arrays.append(parts[0] if len(parts) == 1 else pa.concat_arrays(parts))
        return pa.Table.from_arrays(arrays, schema=schema)
    for at in columns:
        store = picks[0][0].stores[at]
        valid = None
        if any(block.valid[at] is not None for block, _ in picks):
            flags = [_flags(block.valid[at], inside) for block, inside in picks]
            valid = bitmap(np.concatenate(flags))
        picked = store.pick([(block.room[at], inside) for block, inside in picks], valid)
        arrays.append(store.plain(picked))
    return pa.Table.from_arrays(arrays, schema=schema)


def _parts(blocks: Sequence[Block | Cold], slots: Slots) -> list[tuple[Block | Cold, Slots]]:
    """Returns the blocks of slots in ascending order, and where in each they are."""
    numbers = slots >> SHIFT
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(slots)]
    return [(blocks[int(numbers[start])], slots[start:end] & MASK) for start, end in pairwise(cuts)]


def _flags(valid: npt.NDArray[np.bool_] | None, inside: Slots) -> npt.NDArray[np.bool_]:
    return np.ones(len(inside), dtype=np.bool_) if valid is None else valid[inside]


def _picked(block: Block | Cold, at: int, inside: Slots) -> pa.Array:
    if isinstance(block, Cold):
        return block.column(at, 0, SIZE).take(pa.array(inside))
    valid = block.valid[at]
    bits = None if valid is None else bitmap(valid[inside])
    store = block.stores[at]
    return store.plain(store.pick([(block.room[at], inside)], bits))
