"""Represents a memory table as it was after one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.changes import AT, ROW
from millpond.errors import NotSupported, UnknownName, did_you_mean
from millpond.records.keys import integers_of, lookup_list
from millpond.tables._blocks import SHIFT, Block, Blocks, Slots
from millpond.tables._column_cache import ShownRows
from millpond.tables._index import MANY
from millpond.tables._rows import Row
from millpond.tables._sums import decimal_sum
from millpond.tables._versions import TableVersion, Way
from millpond.tables.base import Snapshot
from millpond.types import Column, Schema

Settled = dict[tuple[str, ...], tuple[Any, Any, Any, Any]]
"""By columns: the maps from a key to its group, from a group to its slot and to its slots, and the blocks."""

_MANY = 64
"""More integer keys than this are looked up together."""
_FEW = 16


class FoundSlots:
    """Reads rows by their slots."""

    __slots__ = ("_blocks", "_slots")

    def __init__(self, blocks: Blocks, slots: Sequence[int] | Slots):
        self._blocks = blocks
        self._slots = slots

    def __len__(self) -> int:
        return len(self._slots)

    def records(self) -> list[Row]:
        return self._blocks.records(self._slots)

    def table(self) -> pa.Table:
        return self._blocks.take(np.sort(np.asarray(self._slots, dtype=np.int64)))


def way_of(schema: Schema, key: tuple[str, ...], columns: tuple[str, ...]) -> Way | None:
    """Returns how rows are found by values of these columns, without conversion; None if they are not."""
    asked = [schema.find(name) for name in columns]
    names = [c.name for c in asked if c is not None]
    kinds = [kind for c in asked if c is not None and (kind := _kind(c.type)) is not None]
    if not names or len(kinds) < len(columns) or len(set(names)) < len(names):
        return None
    order = key if set(names) == set(key) else tuple(sorted(names))
    turned = None if order == tuple(names) else [names.index(name) for name in order]
    return order, tuple(kinds), turned


def _kind(dtype: pa.DataType | None) -> type | None:
    return int if pa.types.is_integer(dtype) else str if pa.types.is_string(dtype) else None


def _fits(key: Any, kinds: tuple[type, ...]) -> bool:
    return (
        type(key) is tuple
        and len(key) == len(kinds)
        and all([type(part) is kind for part, kind in zip(key, kinds, strict=True)])
    )


class MemorySnapshot(Snapshot):
    """Represents a snapshot. It is immutable, except for cached results. While it exists, its rows stay in memory."""

    def __init__(self, schema: Schema, key: tuple[str, ...], table_version: TableVersion):
        self.schema = schema
        self.table_version = table_version
        self.mark = table_version.mark
        self.version = table_version.mark.version
        self.whole = table_version.mark.alive == table_version.mark.slots
        self.blocks = table_version.blocks.blocks
        self._key = key
        self._generation = table_version.generation
        self._blocks = table_version.blocks
        self._died = table_version.died
        self._shown: list[Callable[[int], list[pa.Array]]] | None = None
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._scans: dict[tuple[str, ...], pa.Table] = {}

    def __len__(self) -> int:
        return self.mark.alive

    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        """Returns the same as Snapshot.get, in the order of the rows; the key is found in its index, other columns in
        one made for them.
        """
        asked = [self._column(name) for name in columns]
        if len(asked) != keys.num_columns or not asked:
            raise ValueError(f"{len(asked)} columns, but {keys.num_columns} columns of keys")
        names = [c.name for c in asked]
        order = self._key if set(names) == set(self._key) else tuple(sorted(set(names)))
        if len(order) != len(names):
            raise ValueError("a column is asked for twice")
        at = [names.index(name) for name in order]
        end = self.mark.slots
        quick = self._quick_slots(asked, integers_of(keys.column(0))) if order == self._key else None
        if quick is None:
            wanted = lookup_list([asked[i].type for i in at], keys.select(at), nulls)
            if order == self._key:
                slots = self._generation.slots_before(wanted, end)
            else:
                slots = self._generation.index_on(order, self._blocks, end).find(wanted, self._blocks, end)
                slots = slots[slots < end]
            slots = np.sort(slots)
        else:
            slots = quick
        slots = slots[self._died[slots] > self.mark.version]
        found = self._blocks.take(slots)
        if rows:
            self._no_key()
            found = found.append_column(ROW, pa.array(self._generation.numbers.of(slots)))
        return found

    def find(self, columns: tuple[str, ...], keys: Sequence[Any]) -> FoundSlots | None:
        generation = self._generation
        way = generation.ways.get(columns)
        if way is None:
            way = way_of(self.schema, self._key, columns)
            if way is None:
                return None
            generation.ways[columns] = way
        names, kinds, turned = way
        if len(kinds) == 1:
            kind = kinds[0]
            for key in keys:
                if type(key) is not kind:
                    return None
        elif not all([_fits(key, kinds) for key in keys]):
            return None
        if turned is not None:
            keys = [tuple([key[at] for at in turned]) for key in keys]
        if len(keys) > 1:
            keys = list(dict.fromkeys(keys))
        if kinds == (int,) and len(keys) > _MANY and names == self._key:
            column = self._column(names[0])
            quick = self._quick_slots([column], integers_of(keys))
            if quick is not None:
                return FoundSlots(self._blocks, quick[self._died[quick] > self.version])
        return FoundSlots(self._blocks, self.slots_of_all(names, keys))

    def slots_of_all(self, columns: tuple[str, ...], keys: Sequence[Any]) -> Sequence[int] | Slots:
        """Returns the slots of the rows whose columns equal one of the keys, each of which occurs once, in ascending
        order; many as an array. The columns are those of the primary key, or others, sorted.
        """
        end, died, generation = self.mark.slots, self._died, self._generation
        if columns == self._key:
            if len(keys) <= _FEW:
                return sorted([slot for key in keys for slot in self.slots_of_key(key)])
            slots = generation.slots_before(list(keys), end)
        elif len(keys) == 1:
            return self.slots_of(columns, keys[0])
        else:
            slots = generation.index_on(columns, self._blocks, end).find(keys, self._blocks, end)
            slots = slots[slots < end]
        found: Slots = np.sort(slots[died[slots] > self.version])
        return found if len(found) > MANY else found.tolist()

    def _quick_slots(self, key: Sequence[Column], wanted: npt.NDArray[np.int64] | None) -> Slots | None:
        """Returns the slots of many integer keys, in ascending order; None if they are found by the index."""
        if wanted is None or len(wanted) <= _MANY or len(key) > 1 or not pa.types.is_integer(key[0].type):
            return None
        return self._generation.int_slots_before(wanted, key[0].name, self._blocks, self.mark.slots)

    def slots_of(self, columns: tuple[str, ...], key: Any) -> Sequence[int] | Slots:
        """Returns the slots of the rows whose columns equal the key, in ascending order; many as an array. The columns
        are sorted, and not those of the primary key.
        """
        generation, end = self._generation, self.mark.slots
        index = generation.others.get(columns) or generation.index_on(columns, self._blocks, end)
        groups = index.groups
        if groups.covered < end:
            groups = index.extended(self._blocks, end)
        number = groups.found.get(key)
        found: Sequence[int] | Slots = (
            ()
            if number is None
            else (slot,)
            if (slot := groups.places[number]) >= 0
            else groups.several(number)
        )
        if groups.recent:
            found = groups.with_recent(key, found)
        if self.whole and groups.covered == end:
            return found
        if isinstance(found, np.ndarray):
            found = found[found < end]
            return found[self._died[found] > self.version]
        return [slot for slot in found if slot < end and self._died[slot] > self.version]

    def settle(self, settled: Settled, columns: tuple[str, ...]) -> None:
        """Publishes the index on the columns, if it returns exactly the rows of this snapshot. The next commit drops
        it: ``settled`` was read before the snapshot.
        """
        index = self._generation.others.get(columns)
        groups = None if index is None else index.groups
        if groups is not None and self.whole and groups.covered == self.mark.slots and not groups.recent:
            settled[columns] = (groups.found.get, groups.places, groups.several, self.blocks)

    def slots_of_key(self, key: Any) -> Sequence[int]:
        """Returns the slot of the row with the key, if there is one."""
        generation, end = self._generation, self.mark.slots
        slot = generation.newest.get(key, -1)
        if slot < -1:
            slot = -2 - slot
        while slot >= end:
            slot = int(generation.replaced[slot])
        return (slot,) if slot >= 0 and self._died[slot] > self.version else ()

    def decimal_sum(self, column: str) -> tuple[Decimal | None] | None:
        dtype = self._column(column).type
        if dtype is None or not pa.types.is_decimal128(dtype) or dtype.precision > 18:
            return None
        at = [name.lower() for name in self.schema.names].index(column.lower())
        return (decimal_sum(self.table_version, at),)

    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        names = self.schema.names if columns is None else tuple(self._column(c).name for c in columns)
        if rows:
            self._no_key()
        asked = (*names, ROW) if rows else names
        table = self._scans.get(asked)
        if table is None:
            fields = [self._blocks.schema.field(n) for n in names]
            arrays = [self._visible(n) for n in names]
            if rows:
                fields.append(pa.field(ROW, pa.int64()))
                arrays.append(pa.chunked_array([pa.array(self._row_numbers())]))
            table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
            order = self._order()
            if order is not None and names:
                table = table.take(order)
            if self._blocks.spilled_bytes:
                return table
            table = self._scans.setdefault(asked, table)
        return table

    def changed_since(self, before: Snapshot, numbers: Sequence[int]) -> tuple[pa.Table, pa.Table] | None:
        """Returns the same as Snapshot.changed_since, unless the slots were numbered anew in between."""
        if not isinstance(before, MemorySnapshot) or before.table_version.generation is not self._generation:
            return None
        if before.schema is not self.schema:
            return None
        start, end = before.mark.slots, self.mark.slots
        came = start + np.flatnonzero(self._died[start:end] > self.version)
        return before.numbered(numbers), self._blocks.take(came)

    def numbered(self, numbers: Sequence[int]) -> pa.Table:
        """Returns the rows with these numbers, of a table without a key."""
        newest = self._generation.numbers.newest(np.asarray(numbers, dtype=np.int64)).tolist()
        replaced, end, slots = self._generation.replaced, self.mark.slots, []
        for slot in newest:
            while slot >= end:
                slot = int(replaced[slot])
            if slot >= 0 and self._died[slot] > self.version:
                slots.append(slot)
        return self._blocks.take(np.sort(np.asarray(slots, dtype=np.int64)))

    def parts(self, *, rows: bool = False) -> Iterator[pa.Table]:
        if rows:
            self._no_key()
        schema = self._blocks.schema
        spans = self._blocks.spans(self.mark.slots)
        for start, end in spans or [(0, 0)]:
            mask = self._mask(start, end)
            arrays = [self._blocks.column(at, start, end, mask) for at in range(len(schema))] if spans else []
            part = pa.table(arrays, schema=schema) if spans else schema.empty_table()
            if rows:
                seen = start + np.flatnonzero(self._died[start:end] > self.mark.version)
                part = part.append_column(ROW, pa.array(self._generation.numbers.of(seen), pa.int64()))
            if self._generation.ages is not None:
                seen = start + np.flatnonzero(self._died[start:end] > self.mark.version)
                part = part.append_column(AT, pa.array(self._generation.ages.of(seen), pa.float64()))
            yield part

    def changed_before(self, time: float, most: int) -> pa.Table:
        ages = self._generation.ages
        end = min(ages.made_before(time), self.mark.slots) if ages is not None else 0
        slots = np.flatnonzero(self._died[:end] > self.mark.version)[:most]
        found = self._blocks.take(slots)
        return found if self._key else found.append_column(ROW, pa.array(self._generation.numbers.of(slots)))

    def _no_key(self) -> None:
        if self._key:
            raise NotSupported("the rows of a table with a primary key are known by it: they have no numbers")

    def _row_numbers(self) -> Slots:
        """Returns the number of each row, in the order of the slots."""
        seen = np.flatnonzero(self._died[: self.mark.slots] > self.mark.version)
        return self._generation.numbers.of(seen)

    def _order(self) -> pa.Array | None:
        """Returns the order of the rows of a table without a key, if it is not that of the slots."""
        if self._key or self._generation.numbers.ordered:
            return None
        numbers = self._row_numbers()
        if (numbers[1:] > numbers[:-1]).all():
            return None
        return pa.array(np.argsort(numbers, kind="stable"))

    def _visible(self, name: str) -> pa.ChunkedArray:
        """Returns the column of the visible rows; numbers in a block without a dead row are not copied, nor is what a
        reader of almost the same rows has.
        """
        found = self._columns.get(name)
        if found is None:
            if self._shown is None:
                self._shown = [self._rows_of(*span) for span in self._blocks.spans(self.mark.slots)]
            at = self._blocks.schema.get_field_index(name)
            parts = [part for rows in self._shown for part in rows(at)]
            found = pa.chunked_array(parts, self._blocks.schema.field(at).type)
            if not self._blocks.spilled_bytes:
                found = self._columns.setdefault(name, found)
        return found

    def _rows_of(self, start: int, end: int) -> Callable[[int], list[pa.Array]]:
        """Returns a function that returns a column of the visible rows between two slots of a block."""
        block = self._blocks.blocks[start >> SHIFT]
        if isinstance(block, Block) and not self._blocks.spills:
            return ShownRows(block, self._died[start:end] > self.mark.version).column
        mask = self._mask(start, end)

        def column(at: int) -> list[pa.Array]:
            part = self._blocks.column(at, start, end, mask)
            return [part] if len(part) else []

        return column

    def _mask(self, start: int, end: int) -> pa.Array | None:
        seen = self._died[start:end] > self.mark.version
        return None if seen.all() else pa.array(seen)

    def _column(self, name: str) -> Column:
        found = self.schema.find(name)
        if found is None:
            raise UnknownName(
                f'column "{name}" is not in the table', hint=did_you_mean(name, self.schema.names)
            )
        return found
