"""Changes single rows on the fast path: without Arrow, in a few microseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from millpond import faults
from millpond.changes import Changes
from millpond.locks import Turns
from millpond.records.values import Unfit
from millpond.tables._blocks import Blocks, Slots
from millpond.tables._codec import is_plain, writers
from millpond.tables._compaction import Compaction
from millpond.tables._free_memory import Room
from millpond.tables._hot import HotRecords
from millpond.tables._limit import LOOK_EVERY, Limit
from millpond.tables._rewind import Point
from millpond.tables._versions import NEVER, Generation, Live, Mark
from millpond.tables.base import Patch
from millpond.types import Schema


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


class SingleRows:
    """Inserts, changes and deletes single rows of a memory table.

    Methods return None for what the fast path does not support: another spelling of a field, a value that must be
    converted or refused, a key of another kind. The general path then handles it, or reports the error.
    """

    schema: Schema
    live: Live
    _key: tuple[str, ...]
    null_keys: bool
    _blocks: Blocks
    _generation: Generation
    _died: Slots
    _mark: Mark
    _writing: Turns
    _limit: Limit
    _room: Room | None
    _compaction: Compaction | None
    hot: HotRecords

    if TYPE_CHECKING:

        def _publish(self, made: int, ended: int, commit: int) -> None: ...
        def _compact(self, *, forced: bool = False) -> None: ...
        def _check_open(self) -> None: ...
        def _apply(self, changes: Changes, commit: int) -> None: ...
        def check(self, changes: Changes) -> Changes: ...
        def admit(self, changes: Changes) -> None: ...
        def snapshot(self, commit: int | None = None) -> Any: ...
        def _whole(self) -> AbstractContextManager[None]: ...
        def point(self) -> Point: ...
        def rewind(self, point: Point) -> None: ...

    def _set_up_single_rows(self) -> None:
        columns = self.schema.columns
        self._width = len(columns)
        self._writers: Mapping[str, tuple[int, Callable[[Any], Any]]] = writers(self.schema)
        self._key_at = [self.schema.names.index(name) for name in self._key]
        self._required = [at for at, c in enumerate(columns) if not c.nullable or c.name in self._key]
        timed = self._generation.ages is not None  # the journal stores the time with the rows
        self._plain_key = not timed and all(is_plain(columns[at].type) for at in self._key_at)

    def put_record(self, record: Mapping[str, Any], fresh: bool = False) -> bool | None:
        """Adds the record, or replaces the one with its key."""
        with self._writing:
            edit = self.put_edit(record, fresh)
            if edit is None:
                return None
            self._apply_alone(edit)
        return True

    def patch_record(self, key: Any, record: Patch) -> int | None:
        """Changes fields of the record with the key, which are not of the key; returns how many records there were."""
        with self._writing:
            edit = self.patch_edit(key, record)
            if edit is None or edit is NOTHING:
                return None if edit is None else 0
            self._apply_alone(edit)
        return 1

    def drop_record(self, key: Any) -> int | None:
        """Deletes the record with the key; returns how many there were."""
        with self._writing:
            edit = self.drop_edit(key)
            if edit is None or edit is NOTHING:
                return None if edit is None else 0
            self._apply_alone(edit)
        return 1

    def _apply_alone(self, edit: Edit) -> None:
        """Applies the edit, or, if that raises, nothing."""
        point = self.point()
        try:
            self.apply_edit(edit, self._mark.commit)
            self._compact()
        except BaseException:
            self.rewind(point)
            raise

    # an edit is made and applied with no other change of its row in between, and no compaction

    def put_edit(self, record: Mapping[str, Any], fresh: bool = False) -> Edit | None:
        """Returns the edit that adds a record; with ``fresh`` only if its key does not exist."""
        self._check_open()
        values: list[Any] = [None] * self._width
        if not self._plain_key or not self._fill(values, record):
            return None
        for at in self._required:
            if values[at] is None:
                return None
        if not self._mark.slots % LOOK_EVERY:
            self._look()
        key, old = None, -1
        if self._key:
            at = self._key_at[0]
            key = values[at] if len(self._key_at) == 1 else tuple([values[at] for at in self._key_at])
            old = self._generation.newest.get(key, -1)
            if fresh and old >= 0:
                return None
        return Edit(key, old, values)

    def patch_edit(self, key: Any, record: Patch) -> Edit | None:
        """Returns the edit that changes a record, or NOTHING."""
        self._check_open()
        if not self._is_key(key):
            return None
        if not self._mark.slots % LOOK_EVERY:
            self._look()
        old = self._generation.newest.get(key, -1)
        cells = self._blocks.cells(old) if old >= 0 else []
        try:
            if not isinstance(record, Mapping):
                if not cells:
                    return NOTHING
                record = record(self._blocks.record(old))
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

    def drop_edit(self, key: Any) -> Edit | None:
        """Returns the edit that deletes a record, or NOTHING."""
        self._check_open()
        if not self._is_key(key):
            return None
        old = self._generation.newest.get(key, -1)
        return Edit(key, old, None) if old >= 0 else NOTHING

    def apply_edit(self, edit: Edit, commit: int) -> None:
        key, old, cells = edit
        generation, slot = self._generation, self._mark.slots
        if old >= 0:
            self._died[old] = self._mark.version + 1
        if cells is None:
            generation.newest[key] = -2 - old
            if self._compaction is not None:
                self._compaction.deleted((key,))
            if self.hot.active:
                self.hot.forget(key)
            self._publish(0, 1, commit)
            return
        self._blocks.put(slot, cells)
        faults.reach("edit: put")
        if slot >= len(self._died):
            self._died = self._limit.grown(self._died, slot + 1, NEVER)
        if not self._key:
            generation.numbers.add(1)
            self._publish(1, 0, commit)
            return
        if slot >= len(generation.replaced):
            generation.replaced = self._limit.grown(generation.replaced, slot + 1, -1)
        generation.replaced[slot] = old if old >= -1 else -2 - old
        generation.newest[key] = slot
        if old >= 0 and self.hot.active:
            self.hot.forget(key)
        self._publish(1, 1 if old >= 0 else 0, commit)

    def tidy(self) -> None:
        """Removes rows that nobody needs, if it is time to: after edits."""
        self._compact()

    @property
    def limited(self) -> bool:
        """Returns whether memory is limited; then preparing an edit may free memory, which moves rows."""
        return self._limit.most is not None

    @property
    def arrow_schema(self) -> pa.Schema:
        """Returns the schema of rows as they are stored."""
        return self._blocks.schema

    def edit_cells(self, edit: Edit, point: Point | None = None) -> list[Any]:
        """Returns the cells of the edit, of a deleted row those of its key; it was made on the newest rows, or on those
        of the point.
        """
        if edit.cells is not None:
            return edit.cells
        cells = (self._blocks if point is None else point.table_version.blocks).cells(edit.old)
        return [cell if at in self._key_at else None for at, cell in enumerate(cells)]

    def edit_changes(self, edit: Edit, point: Point | None = None) -> Changes:
        """Returns the edit as rows."""
        rows = self._blocks.row_of(self.edit_cells(edit, point))
        return Changes(rows) if edit.cells is not None else Changes(rows, _DELETED)

    def change(self, find: Callable[[Any], tuple[Changes | None, int]]) -> int:
        """Applies what ``find`` computes on the newest snapshot, with no other change in between; returns its count."""
        with self._writing:
            changes, count = find(self.snapshot())
            if changes is not None:
                changes = self.check(changes)
                with self._whole():
                    self.admit(changes)
                    self._apply(changes, self._mark.commit)
            return count

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
