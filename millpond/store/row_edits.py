"""Commits changes of single rows in groups that share one disk sync.

A thread queues its edit. The first one waits for the write lock, and commits all queued edits with one sync; the others
wait until it has done theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

import pyarrow as pa

from millpond import faults
from millpond.changes import Changes
from millpond.journal.requests import GroupCommit, Receipt, locked_lock
from millpond.journal.small_changes import RowChange, RowForm
from millpond.store.store import Store
from millpond.tables.memory import NOTHING, Edit, MemoryTable, Point

Make = Callable[[MemoryTable], Edit | None]
"""Makes an edit of the newest rows; returns None where the general path is needed."""

_MOST = 1_000
"""The maximum number of edits in one commit."""


@dataclass(slots=True, eq=False)
class _Wanted:
    """Contains the edit of one thread and its result: how many rows it changed, or None for the general path."""

    table: str
    make: Make
    number: int | None = None
    changed: bool = False
    """Whether the group of the edit has changed a row."""
    committed: bool = False
    error: BaseException | None = None
    leads: bool = False
    wake: Lock = field(default_factory=locked_lock)

    def end(self, count: int | None, error: BaseException | None = None) -> None:
        self.number, self.error = count, error
        self.committed = True


_Made = tuple[str, MemoryTable, Edit]
"""An edit of the table of that name."""


class RowEdits:
    """Commits changes of single rows of the tables of a store."""

    def __init__(self, store: Store):
        self._store = store
        self._group = GroupCommit(self._commit_all, store.writing)
        self._forms: dict[str, tuple[pa.Schema, RowForm | None]] = {}

    def commit(self, table: str, make: Make) -> int | None:
        """Commits an edit of one row and returns how many rows it changes; None if the table, or the edit, needs the
        general path.
        """
        store, name = self._store, table.lower()
        if (self._group.idle or store.writing.mine) and store.writing.try_enter():
            # Fast path: no other thread waits.
            return self._commit_entered(name, make)
        wanted = _Wanted(name, make)
        try:
            return self._group.submit(wanted)
        finally:
            if wanted.leads and wanted.changed:
                store.visibility.committed()

    def commit_now(self, table: str, make: Make) -> int | None:
        """Works as ``commit``, for a thread that must not wait. It also returns None if another thread writes, and for
        a table whose changes go to disk, to followers or to views in the same commit.
        """
        store, name = self._store, table.lower()
        backend = store.table(name)
        if not isinstance(backend, MemoryTable) or backend.limited or store.journals(name):
            return None
        if store.feed.follows(name) or self._goes_alone(name):
            return None
        if not self._group.idle or not store.writing.try_enter():
            return None
        return self._commit_entered(name, make)

    def _commit_entered(self, name: str, make: Make) -> int | None:
        store = self._store
        try:
            backend = store.table(name)
            edit = make(backend) if isinstance(backend, MemoryTable) else None
            if edit is None or edit is NOTHING:
                return None if edit is None else 0
            assert isinstance(backend, MemoryTable)
            if self._goes_alone(name):
                store.commit({name: backend.edits.changes_of(edit)})
                return 1
            interrupt = self._write([(name, backend, edit)])
        finally:
            store.writing.__exit__()
        store.visibility.committed()
        if interrupt is not None:
            raise interrupt
        return 1

    def _commit_all(self, group: list[_Wanted]) -> None:
        """Commits the edits of several threads together, each as if it were alone."""
        left = deque(group)
        while left:
            if self._goes_alone(left[0].table):
                self._commit_alone(left.popleft())
                continue
            done, made = self._made(left)
            if not made:
                continue
            try:
                interrupt = self._write(made)
            except Exception as error:
                for wanted in done:
                    wanted.end(None, error)
                continue
            for wanted in done:
                wanted.end(1)
            for wanted in group:
                wanted.changed = True
            if interrupt is not None:
                raise interrupt

    def _goes_alone(self, table: str) -> bool:
        """Returns whether others change with the table, or its changes go to a changelog."""
        return self._store.dependents.reads(table) or self._store.changelogs.captures(table)

    def _commit_alone(self, wanted: _Wanted) -> None:
        """Commits an edit of a table that others change with: their error refuses this edit alone."""
        self._store.writing.__enter__()  # which ``_commit_entered`` leaves
        try:
            wanted.end(self._commit_entered(wanted.table, wanted.make))
        except Exception as error:
            wanted.end(None, error)

    def _made(self, left: deque[_Wanted]) -> tuple[list[_Wanted], list[_Made]]:
        """Takes the next edits that can go into one commit. An edit finds the row that it replaces by its place. So two
        edits of one row cannot go together, nor two of a table whose rows may move when the next edit needs space.
        """
        done: list[_Wanted] = []
        made: list[_Made] = []
        touched: set[object] = set()
        while left and len(made) < _MOST:
            wanted = left[0]
            backend = self._store.table(wanted.table)
            if self._goes_alone(wanted.table):
                break
            if not isinstance(backend, MemoryTable):
                left.popleft().end(None)
                continue
            if backend.limited and wanted.table in touched:
                break
            try:
                edit = wanted.make(backend)
            except Exception as error:
                left.popleft().end(None, error)
                continue
            if edit is None or edit is NOTHING:
                left.popleft().end(None if edit is None else 0)
                continue
            if backend.key and (wanted.table, edit.key) in touched:
                break
            touched |= {wanted.table, (wanted.table, edit.key)}
            done.append(left.popleft())
            made.append((wanted.table, backend, edit))
        return done, made

    def _write(self, made: list[_Made]) -> BaseException | None:
        """Commits edits. Returns an interrupt that came after they were durable, as ``Visibility.bring_in`` does."""
        store = self._store
        store.visibility.check_running()
        kept = [one for one in made if store.journals(one[0])]
        rows = self._rows(kept)
        parts: dict[str, list[Changes]] = {}
        for name, backend, edit in made:
            if rows is None or store.feed.follows(name):
                parts.setdefault(name, []).append(backend.edits.changes_of(edit))
        changes = {name: _together(some) for name, some in parts.items()} if parts else {}
        points = [backend.storage.point() for _, backend, _ in made]
        receipt = Receipt()
        try:
            if kept:
                sync = any([store.durability(name) == "commit" for name, _, _ in kept])
                if rows is not None:
                    store.journal.commit_rows(rows, sync=sync, receipt=receipt)
                else:
                    journalled = {name: c for name, c in changes.items() if store.journals(name)}
                    store.journal.commit(journalled, sync=sync, receipt=receipt)
            else:
                receipt.number = store.journal.number()
            assert receipt.number is not None
            with store.publishing:
                faults.reach("commit: journalled")
                for _, backend, edit in made:
                    backend.edits.apply(edit, receipt.number)
                for _, backend, _ in made:
                    backend.storage.compact()
                return store.visibility.notify(changes) if changes else None
        except BaseException as error:
            if receipt.number is None:
                raise
            with store.publishing:
                interrupt = self._apply_again(made, points, receipt.number, error, committed=bool(kept))
                return (store.visibility.notify(changes) if changes else None) or interrupt

    def _rows(self, made: list[_Made]) -> list[RowChange] | None:
        """Returns edits as the journal stores single rows; None if a table has columns that are not stored so."""
        rows = []
        for name, backend, edit in made:
            form = self._form(name, backend)
            if form is None:
                return None
            rows.append(RowChange(name, form, edit.cells is None, backend.edits.cells_of(edit)))
        return rows

    def _form(self, name: str, backend: MemoryTable) -> RowForm | None:
        """Returns how the journal stores single rows of the table as cells; None if it does not."""
        schema = backend.arrow_schema
        known = self._forms.get(name)
        if known is None or known[0] is not schema:
            form = RowForm(schema) if RowForm.fits(schema) else None
            known = self._forms[name] = (schema, form)
        return known[1]

    def _apply_again(
        self, made: list[_Made], points: list[Point], number: int, error: BaseException, *, committed: bool
    ) -> BaseException | None:
        """Undoes the applied part of a commit, and applies the whole commit as rows, which do not refer to slots."""
        store = self._store
        first: dict[str, tuple[MemoryTable, Point, list[Changes]]] = {}
        interrupt = None if isinstance(error, Exception) else error
        try:
            for (name, backend, edit), point in zip(made, points, strict=True):
                kept = first.setdefault(name, (backend, point, []))
                kept[2].append(backend.edits.changes_of(edit, kept[1]))
            for backend, point, _ in first.values():
                backend.storage.rewind(point)
            changes = {name: _together(some) for name, (_, _, some) in first.items()}
        except BaseException as worse:
            store.visibility.stop(worse)
            return interrupt
        return store.visibility.bring_in(changes, number, committed=committed) or interrupt


def _together(changes: list[Changes]) -> Changes:
    """Combines successive changes of one table into one."""
    if len(changes) == 1:
        return changes[0]
    rows = pa.concat_tables([c.rows for c in changes])
    if all(c.deleted is None for c in changes):
        return Changes(rows)
    kept = pa.array([False], pa.bool_())
    return Changes(rows, pa.concat_arrays([kept if c.deleted is None else c.deleted for c in changes]))
