"""Tracks the text that is being run: the identities of its statements, and the transaction that they are in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TypeVar

from millpond.changes import Changes
from millpond.dml.mutate import Outdated
from millpond.query.transaction import Transaction
from millpond.sql import statements as st
from millpond.sql.identity import identity
from millpond.store.done_statements import changes, note
from millpond.store.snapshot import StoreSnapshot
from millpond.store.store import Store
from millpond.store.undo import Undo

T = TypeVar("T")


class TextRun:
    """Contains what the statements of a text have in common. The thread that runs one holds the lock of the app."""

    def __init__(self, store: Store):
        self._store = store
        self.in_file = False
        """Whether the app's own file is being run."""
        self._transaction: Transaction | None = None
        self._thread = 0
        self._block_done: list[str] = []
        self.standing = 0
        """Statements of the text that have created something that still exists."""
        self.counts: dict[str, int] = {}
        """How often each statement has run, by its identity."""

    @property
    def transaction(self) -> Transaction | None:
        """Returns the transaction of the statements inside BEGIN … COMMIT."""
        return self._transaction

    @transaction.setter
    def transaction(self, transaction: Transaction | None) -> None:
        self._thread = threading.get_ident()
        self._transaction = transaction

    def in_block(self) -> bool:
        """Returns whether this thread runs a statement of a transaction."""
        return self._transaction is not None and self._thread == threading.get_ident()

    def stand(self, undo: Undo) -> None:
        """Counts a statement that may create something, for as long as that exists."""
        self.standing += 1
        undo.on_failure(self._fall)

    def _fall(self) -> None:
        self.standing -= 1

    # statements of the file that run once

    def _occurrence(self, statement: st.Statement) -> str:
        """Returns the identity of a statement and its number among equal ones in this run."""
        key = identity(statement)
        return f"{key}:{self.counts.get(key, 0)}"

    def count(self, statement: st.Statement) -> str:
        """Counts a statement; returns its identity and its number among equal ones in this run."""
        found = self._occurrence(statement)
        key = identity(statement)
        self.counts[key] = self.counts.get(key, 0) + 1
        return found

    def is_done(self, statement: st.Statement) -> bool:
        """Returns whether a statement of the file that runs once ran before a restart."""
        if isinstance(statement, st.Explain) and statement.analyze:
            return self.is_done(statement.statement)
        tells = isinstance(statement, st.ControlQuery) or (
            isinstance(statement, st.Drop) and statement.kind == "query"
        )
        if not tells and not isinstance(statement, (*st.WRITES, st.Truncate)):
            return False
        done = self._store.journal.done(self._occurrence(statement))
        if done:
            self.count(statement)
        return done

    def ran_before(self, *, from_start: bool = False) -> Callable[[st.Statement], bool]:
        """Returns a function that says of each statement of the file, in order, whether it ran before a restart; with
        ``from_start`` of those of a file of which none has run since.
        """
        counts = {} if from_start else dict(self.counts)

        def ran(statement: st.Statement) -> bool:
            if isinstance(statement, st.Block):
                found = [ran(one) for one in statement.statements]
                return bool(found) and all(found)
            if not isinstance(statement, (*st.WRITES, st.Truncate, st.AlterTable)):
                return False
            key = identity(statement)
            number = counts.get(key, 0)
            counts[key] = number + 1
            return self._store.journal.done(f"{key}:{number}")

        return ran

    def left_out(self, statements: Sequence[st.Statement]) -> dict[str, list[str]]:
        """Returns the marks of the statements that ran and are not among these, which are those of a whole file, by
        the names of what they have changed.
        """
        every = [one for s in statements for one in (s.statements if isinstance(s, st.Block) else (s,))]
        every = [s.statement if isinstance(s, st.Explain) else s for s in every]
        numbers: dict[str, Iterator[int]] = {}
        kept = {f"{key}:{next(numbers.setdefault(key, count()))}" for key in map(identity, every)}
        found: dict[str, list[str]] = {}
        for mark, name in changes(self._store.journal):
            if mark not in kept:
                found.setdefault(name, []).append(mark)
        return found

    def pass_over(self, statement: st.Statement) -> None:
        """Counts a statement that ran before a restart, or those of a block."""
        for one in statement.statements if isinstance(statement, st.Block) else (statement,):
            self.count(one)

    def done_by(self, statement: st.Statement, into: str | None = None) -> tuple[str, ...]:
        """Returns what the commit of a statement records, so that a restart does not run it again; nothing if a restart
        loses its changes. ``into`` is the table or stream that it changes: if that is dropped, it runs again.
        """
        if not self.in_file:
            return ()
        number = self.count(statement)
        target = str(getattr(statement, "target", None) or getattr(statement, "name", ""))
        if not self._store.keeps(target):
            return ()
        return (number,) if into is None else (number, note(number, into))

    # what they see and change

    def snapshots(self) -> StoreSnapshot:
        """Returns the tables as the statement that runs sees them."""
        return self._store.snapshots() if self.transaction is None else self.transaction.snapshots()

    def write(
        self,
        statement: st.Statement,
        into: str,
        find: Callable[[StoreSnapshot], tuple[Mapping[str, Changes], T]],
    ) -> T:
        """Commits the changes of a statement, or, inside BEGIN … COMMIT, collects them for the end of the block."""
        done = self.done_by(statement, into)
        if self.transaction is None:
            try:
                return self._store.write(find, done=done, into=(into,))
            except Outdated:
                if self.in_file:
                    self.counts[identity(statement)] -= 1  # it is run again
                raise
        changes, answer = find(self.transaction.snapshots())
        self.transaction.stage(changes)
        self._block_done.extend(done)
        return answer

    # BEGIN … COMMIT

    def begin_block(self, transaction: Transaction) -> None:
        self.transaction, self._block_done = transaction, []

    def end_block(self) -> None:
        """Ends the block: statements are no longer part of it, and uncommitted changes are discarded."""
        if self.transaction is not None:
            self.transaction.rollback()
        self.transaction, self._block_done = None, []

    def commit_block(self) -> None:
        assert self.transaction is not None
        self.transaction.commit(done=tuple(self._block_done))
        self.end_block()

    def roll_back_block(self) -> None:
        """Records that the statements of the block have run, although they changed nothing."""
        assert self.transaction is not None
        done = tuple(self._block_done)
        self.end_block()
        if done:
            self._store.commit(done=done)
