"""Changes of single rows that wait for the disk together.

A thread leaves what it wants and waits for its turn to write. Whoever gets it does all that is left there, in one
commit with one sync; the others find that theirs is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.changes import Changes
from millpond.tables._single import NOTHING, Edit
from millpond.tables.memory import MemoryTable

if TYPE_CHECKING:
    from millpond.app.store import Store

Make = Callable[[MemoryTable], Edit | None]
"""Makes an edit of the newest rows; None where the long way is needed."""

_MOST = 1_000
"""Edits of one commit."""


@dataclass(slots=True, eq=False)
class _Wanted:
    """What one thread wants, and what came of it: how many rows are touched, None for the long way."""

    table: str
    make: Make
    done: bool = False
    count: int | None = None
    error: BaseException | None = None

    def end(self, count: int | None, error: BaseException | None = None) -> None:
        self.count, self.error = count, error
        self.done = True


_Made = tuple[str, MemoryTable, Edit]
"""An edit of the table of that name."""


class Edits:
    """Commits of single rows of the tables of a store."""

    def __init__(self, store: Store):
        self._store = store
        self._left: deque[_Wanted] = deque()

    def commit(self, table: str, make: Make) -> int | None:
        """Commits an edit of one row of the newest rows and answers how many rows it touches; None if the table, or
        what is asked, needs the long way."""
        store, name = self._store, table.lower()
        if self._left or not store.writing.try_enter():
            return self._commit_with_others(_Wanted(name, make))
        # Nobody waits: the frequent case.
        try:
            backend = store.table(name)
            edit = make(backend) if isinstance(backend, MemoryTable) else None
            if edit is None or edit is NOTHING:
                return None if edit is None else 0
            assert isinstance(backend, MemoryTable)
            self._write([(name, backend, edit)])
        finally:
            store.writing.__exit__()
        store.on_commit()
        return 1

    def _commit_with_others(self, wanted: _Wanted) -> int | None:
        self._left.append(wanted)
        changed = False
        try:
            while not wanted.done:
                with self._store.writing:
                    if not wanted.done:
                        changed |= self._commit_all()
        except BaseException:
            wanted.done = True
            raise
        if changed:
            self._store.on_commit()
        if wanted.error is not None:
            raise wanted.error
        return wanted.count

    def _commit_all(self) -> bool:
        """Does what threads want in one commit, each as if it were alone; answers whether a row has changed."""
        done, made = self._made()
        if not made:
            return False
        try:
            self._write(made)
        except BaseException as error:
            for wanted in done:
                wanted.end(None, error)
            if not isinstance(error, Exception):
                raise
            return False
        for wanted in done:
            wanted.end(1)
        return True

    def _made(self) -> tuple[list[_Wanted], list[_Made]]:
        """The next edits that can go together. An edit knows the row that it replaces by its place, so two of one row
        do not, nor two of a table whose rows may move when the next one asks for room."""
        done: list[_Wanted] = []
        made: list[_Made] = []
        touched: set[object] = set()
        while self._left and len(made) < _MOST:
            wanted = self._left[0]
            backend = self._store.table(wanted.table)
            if wanted.done or not isinstance(backend, MemoryTable):
                self._left.popleft().end(None)
                continue
            if backend.limited and wanted.table in touched:
                break
            try:
                edit = wanted.make(backend)
            except Exception as error:
                self._left.popleft().end(None, error)
                continue
            if edit is None or edit is NOTHING:
                self._left.popleft().end(None if edit is None else 0)
                continue
            if backend.key and (wanted.table, edit.key) in touched:
                break
            touched |= {wanted.table, (wanted.table, edit.key)}
            done.append(self._left.popleft())
            made.append((wanted.table, backend, edit))
        return done, made

    def _write(self, made: list[_Made]) -> None:
        store = self._store
        parts: dict[str, list[Changes]] = {}
        for name, backend, edit in made:
            if store.journals(name) or store.feed.follows(name):
                parts.setdefault(name, []).append(backend.edit_changes(edit))
        changes = {name: _together(some) for name, some in parts.items()} if parts else {}
        journalled = {n: c for n, c in changes.items() if store.journals(n)} if changes else {}
        if journalled:
            sync = any(store.durability(name) == "commit" for name in journalled)
            number = store.journal.commit(journalled, sync=sync)
            assert number is not None
        else:
            number = store.journal.number()
        with store.publishing:
            for _, backend, edit in made:
                backend.apply_edit(edit, number)
            for _, backend, _ in made:
                backend.tidy()
            store.feed.add(changes)


def _together(changes: list[Changes]) -> Changes:
    """Changes of one table, one after the other, as one."""
    if len(changes) == 1:
        return changes[0]
    rows = pa.concat_tables([c.rows for c in changes])
    if all(c.deleted is None for c in changes):
        return Changes(rows)
    kept = pa.array([False], pa.bool_())
    return Changes(rows, pa.concat_arrays([kept if c.deleted is None else c.deleted for c in changes]))
