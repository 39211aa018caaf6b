"""Changes single rows on the fast path: without Arrow, in a few microseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from millpond import faults
from millpond.changes import Changes
from millpond.records.values import Unfit
from millpond.tables._codec import is_plain, writers
from millpond.tables._free_memory import Room
from millpond.tables._limit import LOOK_EVERY
from millpond.tables._rewind import Point
from millpond.tables._storage import RowStorage
from millpond.tables._versions import NEVER
from millpond.tables.base import Patch


class Edit(NamedTuple):
    """Describes a change of one row: its key, what the index returns for it, and its new cells, None to
    delete the row.
    """

    key: Any
    old: int
    cells: list[Any] | None


NOTHING = Edit(None, -1, None)
"""The edit if there is no such row to change."""

_DELETED = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(b"\x01")])


class RowEdits:
    """Makes and applies changes of single rows: inserts, updates and deletes.

    An edit is made and applied with no other change of its row in between, and no compaction. Methods return None for
    what the fast path does not support: another spelling of a field, a value that must be converted or refused, a key
    of another kind. The general path then handles it, or reports the error.
    """

    def __init__(self, storage: RowStorage, room: Room | None):
        self._storage = storage
        self._room = room
        schema, columns = storage.schema, storage.schema.columns
        self._key = storage.key
        self._width = len(columns)
        self._writers: Mapping[str, tuple[int, Callable[[Any], Any]]] = writers(schema)
        self._key_at = [schema.names.index(name) for name in self._key]
        self._required = [at for at, c in enumerate(columns) if not c.nullable or c.name in self._key]
        timed = storage.generation.ages is not None  # the journal stores the time with the rows
        self._plain_key = not timed and all(is_plain(columns[at].type) for at in self._key_at)

    def put(self, record: Mapping[str, Any], fresh: bool = False) -> Edit | None:
        """Returns the edit that adds a record; with ``fresh`` only if its key does not exist."""
        storage = self._storage
        storage.check_open()
        values: list[Any] = [None] * self._width
        if not self._plain_key or not self._fill(values, record):
            return None
        for at in self._required:
            if values[at] is None:
                return None
        if not storage.mark.slots % LOOK_EVERY:
            self._look()
        key, old = None, -1
        if self._key:
            at = self._key_at[0]
            key = values[at] if len(self._key_at) == 1 else tuple([values[at] for at in self._key_at])
            old = storage.generation.newest.get(key, -1)
            if fresh and old >= 0:
                return None
        return Edit(key, old, values)

    def patch(self, key: Any, record: Patch) -> Edit | None:
        """Returns the edit that changes a record, or NOTHING."""
        storage = self._storage
        storage.check_open()
        if not self._is_key(key):
            return None
        if not storage.mark.slots % LOOK_EVERY:
            self._look()
        old = storage.generation.newest.get(key, -1)
        cells = storage.blocks.cells(old) if old >= 0 else []
        try:
            if not isinstance(record, Mapping):
                if not cells:
                    return NOTHING
                record = record(storage.blocks.record(old))
            for name, value in record.items():
                at, write = self._writers[name]
                if at in self._key_at or (value is None and at in self._required):
                    return None
                value = None if value is None else write(value)
                if cells:
                    cells[at] = value
        except (KeyError, Unfit, TypeError):
            return None
        return Edit(key, old, cells) if cells else NOTHING

    def _look(self) -> None:
        """Frees memory for the next rows."""
        if self._room is not None:
            self._room.make(LOOK_EVERY * 200, 0)

    def drop(self, key: Any) -> Edit | None:
        """Returns the edit that deletes a record, or NOTHING."""
        storage = self._storage
        storage.check_open()
        if not self._is_key(key):
            return None
        old = storage.generation.newest.get(key, -1)
        return Edit(key, old, None) if old >= 0 else NOTHING

    def apply(self, edit: Edit, commit: int) -> None:
        storage, (key, old, cells) = self._storage, edit
        generation, slot = storage.generation, storage.mark.slots
        if old >= 0:
            storage.died[old] = storage.mark.version + 1
        if cells is None:
            generation.newest[key] = -2 - old
            if storage.compaction is not None:
                storage.compaction.deleted((key,))
            if storage.hot.active:
                storage.hot.forget(key)
            storage.publish(0, 1, commit)
            return
        storage.blocks.put(slot, cells)
        faults.reach("edit: put")
        if slot >= len(storage.died):
            storage.died = storage.limit.grown(storage.died, slot + 1, NEVER)
        if not self._key:
            generation.numbers.add(1)
            storage.publish(1, 0, commit)
            return
        if slot >= len(generation.replaced):
            generation.replaced = storage.limit.grown(generation.replaced, slot + 1, -1)
        generation.replaced[slot] = old if old >= -1 else -2 - old
        generation.newest[key] = slot
        if old >= 0 and storage.hot.active:
            storage.hot.forget(key)
        storage.publish(1, 1 if old >= 0 else 0, commit)

    def cells_of(self, edit: Edit, point: Point | None = None) -> list[Any]:
        """Returns the cells of the edit, of a deleted row those of its key; it was made on the newest rows, or on those
        of the point.
        """
        if edit.cells is not None:
            return edit.cells
        cells = (self._storage.blocks if point is None else point.table_version.blocks).cells(edit.old)
        return [cell if at in self._key_at else None for at, cell in enumerate(cells)]

    def changes_of(self, edit: Edit, point: Point | None = None) -> Changes:
        """Returns the edit as rows."""
        rows = self._storage.blocks.row_of(self.cells_of(edit, point))
        return Changes(rows) if edit.cells is not None else Changes(rows, _DELETED)

    def _fill(self, values: list[Any], record: Mapping[str, Any]) -> bool:
        """Converts the fields of the record to cells in their places; returns False if the fast path does not support
        it.
        """
        writers = self._writers
        try:
            for name, value in record.items():
                at, write = writers[name]
                if value is not None:
                    values[at] = write(value)
        except (KeyError, Unfit, TypeError):
            return False
        return True

    def _is_key(self, key: Any) -> bool:
        """Returns whether the key can be looked up in the index without conversion."""
        if not self._key or not self._plain_key:
            return False
        parts = key if isinstance(key, tuple) else (key,)
        return len(parts) == len(self._key) and all(type(p) is int or type(p) is str for p in parts)
