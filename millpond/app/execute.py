"""Runs checked statements, each by its kind. If one fails, the app is as it was before."""

from __future__ import annotations

from collections.abc import Callable

from millpond import faults
from millpond.app.handlers import NOTHING, Handlers
from millpond.app.script import is_passing
from millpond.app.text_run import TextRun
from millpond.query.result import Result
from millpond.query.transaction import Transaction
from millpond.sql import statements as st
from millpond.sql.checked import Checked
from millpond.store.undo import Undo


class Executor:
    """Runs statements. ``begin`` begins a transaction; ``handlers`` run all but BEGIN, COMMIT and ROLLBACK."""

    def __init__(self, text: TextRun, begin: Callable[[], Transaction]):
        self._text = text
        self._begin = begin
        self.handlers: Handlers = {
            st.Begin: self._begin_block,
            st.Commit: self._commit_block,
            st.Rollback: self._roll_back_block,
        }

    def add(self, *some: Handlers) -> None:
        """Adds handlers for more kinds of statements."""
        for handlers in some:
            self.handlers = {**self.handlers, **handlers}

    def execute(self, checked: Checked) -> Result:
        """Runs one statement and returns its result. If it fails, the app is as it was before."""
        if checked.skip:
            return Result(NOTHING, count=0)
        with Undo() as undo:
            if not is_passing(checked):
                self._text.stand(undo)
            faults.reach("statement checked")
            return self.run(checked, undo)

    def run(self, checked: Checked, undo: Undo) -> Result:
        """Runs one statement as a part of another."""
        return self.handlers[type(checked.statement)](checked, undo)

    def _begin_block(self, checked: Checked, undo: Undo) -> Result:
        self._text.begin_block(self._begin())
        return Result(NOTHING, count=0)

    def _commit_block(self, checked: Checked, undo: Undo) -> Result:
        self._text.commit_block()
        return Result(NOTHING, count=0)

    def _roll_back_block(self, checked: Checked, undo: Undo) -> Result:
        self._text.roll_back_block()
        return Result(NOTHING, count=0)
