"""Changes of one row by the short way: no Arrow, a few microseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millpond.changes import Changes
from millpond.records.values import Unfit
from millpond.tables._blocks import Blocks, Slots
from millpond.tables._codec import is_plain, writers
from millpond.tables._turns import Turns
from millpond.tables._versions import NEVER, Generation, Live, Mark, grown
from millpond.types import Schema


class SingleRows:
    """The part of a memory table that puts, changes and ends single rows.

    ``put_record``, ``patch_record`` and ``drop_record`` answer None for what the short way does not know: another
    spelling of a field, a value that must be converted or refused, a key of another kind. The long way then does
    it, or says what is wrong.
    """

    schema: Schema
    live: Live
    _key: tuple[str, ...]
    _null_keys: bool
    _blocks: Blocks
    _generation: Generation
    _died: Slots
    _mark: Mark
    _writing: Turns

    if TYPE_CHECKING:

        def _publish(self, made: int, ended: int, commit: int) -> None: ...
        def _compact(self) -> None: ...
        def _check_open(self) -> None: ...
        def _apply(self, changes: Changes, commit: int) -> None: ...
        def check(self, changes: Changes) -> Changes: ...
        def snapshot(self, commit: int | None = None) -> Any: ...

    def _set_up_single_rows(self) -> None:
        columns = self.schema.columns
        self._width = len(columns)
        self._writers: Mapping[str, tuple[int, Callable[[Any], Any]]] = writers(self.schema)
        self._key_at = [self.schema.names.index(name) for name in self._key]
        self._required = [at for at, c in enumerate(columns) if not c.nullable or c.name in self._key]
        self._plain_key = all(is_plain(columns[at].type) for at in self._key_at)

    def put_record(self, record: Mapping[str, Any]) -> bool | None:
        """Adds the record, in the place of the one with its key."""
        values: list[Any] = [None] * self._width
        if not self._plain_key or not self._fill(values, record):
            return None
        for at in self._required:
            if values[at] is None:
                return None
        with self._writing:
            self._check_open()
            stores = self._blocks.stores
            cells = [store.cell(value) for store, value in zip(stores, values, strict=True)]
            if not self._key:
                self._blocks.put(self._mark.slots, cells)
                self._generation.numbers.add(1)
                self._publish(1, 0, self._mark.commit)
                return True
            parts = tuple(values[at] for at in self._key_at)
            key = parts[0] if len(parts) == 1 else parts
            self._put(key, self._generation.newest.get(key, -1), cells)
        return True

    def patch_record(self, key: Any, record: Mapping[str, Any]) -> int | None:
        """Changes fields of the record with the key, which are not of the key; answers how many records those
        were."""
        if not self._is_key(key):
            return None
        values = []
        try:
            for name, value in record.items():
                at, write = self._writers[name]
                if at in self._key_at or (value is None and at in self._required):
                    return None
                values.append((at, None if value is None else write(value)))
        except (KeyError, Unfit, TypeError):
            return None
        with self._writing:
            self._check_open()
            slot = self._generation.newest.get(key, -1)
            if slot < 0:
                return 0
            blocks = self._blocks
            cells = blocks.cells(slot)
            for at, value in values:
                cells[at] = blocks.stores[at].cell(value)
            self._put(key, slot, cells)
        return 1

    def drop_record(self, key: Any) -> int | None:
        """Ends the record with the key; answers how many those were."""
        if not self._is_key(key):
            return None
        with self._writing:
            self._check_open()
            newest = self._generation.newest
            slot = newest.get(key, -1)
            if slot < 0:
                return 0
            self._died[slot] = self._mark.version + 1
            newest[key] = -2 - slot
            self._publish(0, 1, self._mark.commit)
            self._compact()
        return 1

    def change(self, find: Callable[[Any], tuple[Changes | None, int]]) -> int:
        """Applies what ``find`` makes of the newest snapshot, with no other change in between; answers its count."""
        with self._writing:
            changes, count = find(self.snapshot())
            if changes is not None:
                self._apply(self.check(changes), self._mark.commit)
            return count

    def _put(self, key: Any, old: int, cells: Sequence[Any]) -> None:
        """A new version of the row with the key. ``old`` is what the index leads to."""
        slot = self._mark.slots
        self._blocks.put(slot, cells)
        generation = self._generation
        if slot >= len(generation.replaced):
            generation.replaced = grown(generation.replaced, slot + 1, -1)
        if slot >= len(self._died):
            self._died = grown(self._died, slot + 1, NEVER)
        generation.replaced[slot] = old if old >= -1 else -2 - old
        if old >= 0:
            self._died[old] = self._mark.version + 1
        generation.newest[key] = slot
        self._publish(1, 1 if old >= 0 else 0, self._mark.commit)
        self._compact()

    def _fill(self, values: list[Any], record: Mapping[str, Any]) -> bool:
        """Puts what the record names in its places, as cells take it; False if the short way does not know it."""
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
        """Whether the index can be asked for the key as it stands."""
        if not self._key or not self._plain_key:
            return False
        parts = key if isinstance(key, tuple) else (key,)
        return len(parts) == len(self._key) and all(type(p) is int or type(p) is str for p in parts)
