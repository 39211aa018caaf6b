"""Commits changes of single rows in groups that share one disk sync.

A thread queues its edit and waits for the write lock. The thread that gets the lock commits all queued edits with one
sync; the others find that their edit is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from millpond import faults
from millpond.changes import Changes
from millpond.errors import StateUnwritable
from millpond.journal.requests import Receipt
from millpond.store.store import Store
from millpond.tables.memory import NOTHING, Edit, MemoryTable, Point

Make = Callable[[MemoryTable], Edit | None]
"""Makes an edit of the newest rows; returns None where the general path is needed."""

_MOST = 1_000
"""The maximum number of edits in one commit."""


@dataclass(slots=True, eq=False)
class _Wanted:
    """Contains the edit of one thread and its result: the number of rows changed, or None for the general path."""

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


class RowEdits:
    """Commits changes of single rows of the tables of a store."""

    def __init__(self, store: Store):
        self._store = store
        self._left: deque[_Wanted] = deque()

    def commit(self, table: str, make: Make) -> int | None:
        """Commits an edit of one row and returns how many rows it changes; None if the table, or the edit, needs the
        general path.
        """
        store, name = self._store, table.lower()
        if self._left or not store.writing.try_enter():
            return self._commit_with_others(_Wanted(name, make))
        # Fast path: no other thread waits.
        return self._commit_entered(name, make)

    def commit_now(self, table: str, make: Make) -> int | None:
        """Works as ``commit``, for a thread that must not wait. It also returns None if another thread writes, and for
        a table whose changes go to disk or to followers.
        """
        store, name = self._store, table.lower()
        backend = store.table(name)
        if not isinstance(backend, MemoryTable) or backend.limited or store.journals(name):
            return None
        if store.feed.follows(name) or self._left or not store.writing.try_enter():
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
            interrupt = self._write([(name, backend, edit)])
        finally:
            store.writing.__exit__()
        store.visibility.committed()
        if interrupt is not None:
            raise interrupt
        return 1

    def _commit_with_others(self, wanted: _Wanted) -> int | None:
        self._left.append(wanted)
        changed = False
        interrupt: BaseException | None = None
        try:
            while not wanted.done:
                with self._store.writing:
                    if not wanted.done:
                        some, came = self._commit_all()
                        changed, interrupt = changed or some, interrupt or came
        except BaseException:
            wanted.done = True
            raise
        if changed:
            self._store.visibility.committed()
        if interrupt is not None:
            raise interrupt
        if wanted.error is not None:
            raise wanted.error
        return wanted.count

    def _commit_all(self) -> tuple[bool, BaseException | None]:
        """Commits the edits of several threads together, each as if it were alone. Returns whether a row has changed,
        and an interrupt that came after that was durable.
        """
        done, made = self._made()
        if not made:
            return False, None
        try:
            interrupt = self._write(made)
        except Exception as error:
            for wanted in done:
                wanted.end(None, error)
            return False, None
        except BaseException as error:
            for wanted in done:
                wanted.end(None, StateUnwritable(f"the commit was interrupted: {error!r}"))
            raise
        for wanted in done:
            wanted.end(1)
        return True, interrupt

    def _made(self) -> tuple[list[_Wanted], list[_Made]]:
        """Returns the next edits that can go into one commit. An edit finds the row that it replaces by its place. So
        two edits of one row cannot go together, nor two of a table whose rows may move when the next edit needs space.
        """
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

    def _write(self, made: list[_Made]) -> BaseException | None:
        """Commits edits. Returns an interrupt that came after they were durable, as ``Visibility.bring_in`` does."""
        store = self._store
        store.visibility.check_running()
        parts: dict[str, list[Changes]] = {}
        for name, backend, edit in made:
            if store.journals(name) or store.feed.follows(name):
                parts.setdefault(name, []).append(backend.edit_changes(edit))
        changes = {name: _together(some) for name, some in parts.items()} if parts else {}
        journalled = {n: c for n, c in changes.items() if store.journals(n)} if changes else {}
        points = [backend.point() for _, backend, _ in made]
        receipt = Receipt()
        try:
            if journalled:
                sync = any(store.durability(name) == "commit" for name in journalled)
                store.journal.commit(journalled, sync=sync, receipt=receipt)
            else:
                receipt.number = store.journal.number()
            assert receipt.number is not None
            with store.publishing:
                faults.reach("commit: journalled")
                for _, backend, edit in made:
                    backend.apply_edit(edit, receipt.number)
                for _, backend, _ in made:
                    backend.tidy()
                return store.visibility.tell(changes) if changes else None
        except BaseException as error:
            if receipt.number is None:
                raise
            with store.publishing:
                interrupt = self._apply_again(made, points, receipt.number, error, committed=bool(journalled))
                return (store.visibility.tell(changes) if changes else None) or interrupt

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
                kept[2].append(backend.edit_changes(edit, kept[1]))
            for backend, point, _ in first.values():
                backend.rewind(point)
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
