"""Runs checked statements, each by its kind. If one fails, the app is as it was before."""

from __future__ import annotations

from collections.abc import Callable

from millpond import faults
from millpond.query.result import Result
from millpond.query.transaction import Transaction
from millpond.sql import statements as st
from millpond.sql.checked import Checked, CheckedNothing
from millpond.sql.checked_commands import CheckedBegin, CheckedEnd
from millpond.statements.handlers import NOTHING, Handlers, handle
from millpond.statements.script import is_passing
from millpond.statements.text_run import TextRun
from millpond.store.undo import Undo


class Executor:
    """Runs statements. ``begin`` begins a transaction, ``check`` raises an error for a statement that must wait;
    ``add`` adds the handlers of other kinds.
    """

    def __init__(
        self, text: TextRun, begin: Callable[[], Transaction], check: Callable[[st.Statement], None]
    ):
        self._check = check
        self._text = text
        self._begin = begin
        self.handlers: Handlers = dict(
            (
                handle(CheckedBegin, self._begin_block),
                handle(CheckedEnd, self._end_block),
                handle(CheckedNothing, self._do_nothing),
            )
        )

    def add(self, *some: Handlers) -> None:
        """Adds handlers for more kinds of statements."""
        for handlers in some:
            self.handlers = {**self.handlers, **handlers}

    def execute(self, checked: Checked) -> Result:
        """Runs one statement and returns its result. If it fails, the app is as it was before."""
        if isinstance(checked, CheckedNothing):
            return Result(NOTHING, count=0)
        with Undo() as undo:
            if not is_passing(checked):
                self._check(checked.statement)
                self._text.stand(undo)
            faults.reach("statement checked")
            return self.run(checked, undo)

    def run(self, checked: Checked, undo: Undo) -> Result:
        """Runs one statement as a part of another."""
        return self.handlers[type(checked)](checked, undo)

    def _begin_block(self, checked: CheckedBegin, undo: Undo) -> Result:
        self._text.begin_block(self._begin())
        return Result(NOTHING, count=0)

    def _end_block(self, checked: CheckedEnd, undo: Undo) -> Result:
        match checked.statement:
            case st.Commit():
                self._text.commit_block()
            case st.Rollback():
                self._text.roll_back_block()
        return Result(NOTHING, count=0)

    def _do_nothing(self, checked: CheckedNothing, undo: Undo) -> Result:
        return Result(NOTHING, count=0)
