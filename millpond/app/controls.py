"""Runs DROP, PAUSE, RESUME, STOP, START, REPLAY, OPTIMIZE and VACUUM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from millpond.query.result import Result
from millpond.sql import statements as st
from millpond.sql.checked_commands import (
    CheckedCare,
    CheckedControl,
    CheckedDrop,
    CheckedDropIndex,
    CheckedDropQuery,
    CheckedReplay,
)
from millpond.statements.drop import Removals
from millpond.statements.handlers import NOTHING, Handlers, handle
from millpond.statements.indexes import Indexes
from millpond.statements.queries import Queries
from millpond.statements.text_run import TextRun
from millpond.store.flusher import Flusher
from millpond.store.store import Store
from millpond.store.undo import Undo
from millpond.streaming.runner import Runner
from millpond.tables.versioned_table import VersionedTable


@dataclass(frozen=True, eq=False, repr=False)
class Controls:
    """Drops what statements created, and controls queries."""

    text: TextRun
    store: Store
    removals: Removals
    indexes: Indexes
    queries: Queries
    runner: Runner
    flusher: Flusher

    @property
    def handlers(self) -> Handlers:
        return dict(
            (
                handle(CheckedDrop, self.drop),
                handle(CheckedDropIndex, self.drop_index),
                handle(CheckedDropQuery, self.drop_query),
                handle(CheckedControl, self.control),
                handle(CheckedReplay, self.replay),
                handle(CheckedCare, self.care),
            )
        )

    def drop(self, checked: CheckedDrop, undo: Undo) -> Result:
        s = checked.statement
        self.removals.drop(checked.relation, cascade=s.cascade, place=s.place)
        return Result(NOTHING, count=0)

    def drop_index(self, checked: CheckedDropIndex, undo: Undo) -> Result:
        self.indexes.drop(checked.index)
        return Result(NOTHING, count=0)

    def drop_query(self, checked: CheckedDropQuery, undo: Undo) -> Result:
        s = checked.statement
        act = partial(self.removals.drop_query, s.name, if_exists=s.if_exists, place=s.place)
        return self._tell(s, s.name, "drop", act)

    def control(self, checked: CheckedControl, undo: Undo) -> Result:
        s = checked.statement
        return self._tell(s, s.name, s.action, partial(self.queries.control, s.name, s.action, undo))

    def _tell(self, s: st.Statement, query: str, action: str, act: Callable[[], object]) -> Result:
        """Controls a query. A statement of the file does that once: after a restart the query is as it was left. A
        query that is not restored is controlled each time.
        """
        in_file = self.text.in_file
        done = (self.text.count(s),) if in_file and self.queries.is_kept(query) else ()
        if not in_file or not self.queries.is_done(query, action):
            act()
        if done:
            self.store.commit(done=done)
        return Result(NOTHING, count=0)

    def care(self, checked: CheckedCare, undo: Undo) -> Result:
        s, table = checked.statement, self.store.table(checked.relation.name)
        assert isinstance(table, VersionedTable)
        with self.flusher.undisturbed(table):
            return Result(table.optimize() if isinstance(s, st.Optimize) else table.vacuum(s.hours))

    def replay(self, checked: CheckedReplay, undo: Undo) -> Result:
        return Result(NOTHING, count=self.runner.replay(checked.relation.name))
