"""Parses texts, checks them as a whole, and runs one statement after another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from millpond.app.execute import Executor
from millpond.app.permissions import Permissions
from millpond.app.select import Selects
from millpond.dml.mutate import Outdated
from millpond.errors import Error
from millpond.loading.discovered_columns import KeptColumns
from millpond.loading.loader import Loader
from millpond.plan.connectors import Connectors
from millpond.query.plans import Plans
from millpond.query.result import Result, RunningResult
from millpond.query.transaction import Transaction
from millpond.sql import statements as st
from millpond.sql.bind import Binder, Params
from millpond.sql.checked import Checked
from millpond.sql.checked_commands import CheckedIndex
from millpond.sql.limits import OWN
from millpond.sql.parse import parse
from millpond.sql.statement_text import point_at_word
from millpond.sql.text import Script
from millpond.statements.drop import Removals
from millpond.statements.lifetime import Lifetime
from millpond.statements.queries import Queries
from millpond.statements.saved_statements import SavedStatements
from millpond.statements.script import Checks, Step, is_passing
from millpond.statements.secrets import Secrets
from millpond.statements.text_run import TextRun
from millpond.streaming.emitted_rows import Emitted
from millpond.streaming.starter import Starter

OnAnswer = Callable[[str, Result], None]
"""Receives the results of the statements of the file, with their texts."""
_TRIES, _PAUSE = 100, 0.02
"""How often a statement is checked again when its target gets new columns, and the seconds in between."""
_SHORT = 1_000
"""The maximum characters of a client's text that is looked up among plans. A longer text is measured first, and checked
if it has no plan.
"""


@dataclass(frozen=True, eq=False, repr=False)
class Texts:
    """Runs texts. ``plans`` are those of statements that ran before."""

    lock: threading.RLock
    lifetime: Lifetime
    secrets: Secrets
    plans: Plans[Result]
    selects: Selects
    text: TextRun
    checks: Checks
    executor: Executor
    saved: SavedStatements
    queries: Queries
    connectors: Connectors
    columns: KeptColumns
    loader: Loader
    starter: Starter
    emitted: Emitted
    removals: Removals
    on_answer: OnAnswer | None

    def ask(self, text: str, params: Params, permissions: Permissions | None = None) -> Result:
        """Runs a text; nothing starts if ``permissions`` refuse it."""
        if self.lifetime.closed:
            self.lifetime.check_open()
        if permissions is None or _may_have_plan(text, params):
            try:
                found = self.plans.find(text, params, None if permissions is None else permissions.planned)
            except Error as error:
                self._place(error, text, params, permissions)
                raise
            if found is not None:
                return found
        script, statements = self._parse(text, params, permissions)
        try:
            answer = self.selects.answer(statements, script, permissions)
            if answer is not None:
                return answer
        except Error as error:
            self.secrets.mask_error(error)
            raise
        with self.lock:
            self.lifetime.check_open()
            opened, columns = self.connectors.opened(), frozenset(self.connectors.found)
            self.text.standing = 0
            try:
                result = self._run(script, statements, permissions)
                self.starter.start_new()
            except BaseException:
                if not self.text.standing:
                    self.connectors.close(keep=opened)
                    self.columns.forget_found(keep=columns)
                raise
            return result

    def ask_now(self, text: str, params: Params, permissions: Permissions) -> Result | None:
        """Works as ``ask``, for a thread that must not wait; returns None if the text needs ``ask``."""
        self.lifetime.check_open()
        if not _may_have_plan(text, params):
            return None
        try:
            return self.plans.find_now(text, params, permissions.planned)
        except Error as error:
            self._place(error, text, params, permissions)
            raise

    def _place(self, error: Error, text: str, params: Params, permissions: Permissions | None) -> None:
        """Adds to an error of a plan its place in the text, as the general path does."""
        _, (statement,) = self._parse(text, params, permissions)
        if isinstance(statement, st.Select):
            error.place = error.place or statement.place
        else:
            point_at_word(error, statement)
        self.secrets.mask_error(error)

    def run_file(self, text: str) -> None:
        """Runs the app's own text."""
        self.text.in_file = True
        try:
            self._run(*self._parse(text, None))
        finally:
            self.text.in_file = False
        self.saved.mark_file(self.removals.store.journal)

    def run_in(self, transaction: Transaction, text: str, params: Params) -> Result:
        """Runs statements as part of a transaction of a program."""
        with self.lock:
            self.lifetime.check_open()
            self.loader.wait()
            self.text.transaction = transaction
            try:
                return self._statements(*self._parse(text, params), in_block=True)
            finally:
                self.text.transaction = None

    def _parse(
        self, text: str, params: Params, permissions: Permissions | None = None
    ) -> tuple[Script, tuple[st.Statement, ...]]:
        """Returns the statements of a text, with the values of their parameters, if they may run."""
        limits = OWN if permissions is None else permissions.limits
        parsed = parse(text, None if permissions is None else {}, limits)
        self.secrets.remember(parsed.script)
        try:
            binder = Binder(params, limits)
            statements = tuple(binder.bind(s) for s in parsed.require())
            binder.finish()
            if permissions is not None:
                permissions.parsed(statements, parsed.script.place)
        except Error as error:
            self.secrets.mask_error(error)
            raise
        return parsed.script, statements

    def _run(
        self, script: Script, statements: Sequence[st.Statement], permissions: Permissions | None = None
    ) -> Result:
        try:
            return self._statements(script, statements, permissions=permissions)
        finally:
            self.text.end_block()

    def _statements(
        self,
        script: Script,
        statements: Sequence[st.Statement],
        *,
        in_block: bool = False,
        permissions: Permissions | None = None,
    ) -> Result:
        """Checks all statements of a text, then runs them; returns the result of the last one."""
        result = Result(pa.table({}), count=0)
        opened = self.connectors.opened()
        steps: Sequence[Step] = ()
        try:
            steps = self._prepare(statements, script, in_block=in_block)
            while not self.text.in_file and self.text.transaction is None and (late := self._loading(steps)):
                self.loader.wait(late)
                steps = self._prepare(statements, script, in_block=in_block)
            if permissions is not None:
                permissions.checked([s.checked for s in steps if s.checked is not None])
            for step in steps:
                result = self._step(step, script)
        except Error as error:
            self.secrets.mask_error(error)
            raise
        finally:
            if all(s.checked is not None and is_passing(s.checked) for s in steps):
                self.connectors.close(keep=opened)
        return result

    def _prepare(
        self, statements: Sequence[st.Statement], script: Script, *, in_block: bool
    ) -> Sequence[Step]:
        return self.checks.text(
            statements,
            script.place,
            unclaimed=self.saved.unclaimed,
            queries=self.queries.known(),
            dropped=self.queries.dropped() if self.text.in_file else (),
            counts=self.text.counts,
            in_block=in_block,
            version=None if self.text.transaction is None else self.text.transaction.version,
            ran=self.text.ran_before() if self.text.in_file else lambda _: False,
            in_file=self.text.in_file,
        )

    def _loading(self, steps: Sequence[Step]) -> set[str]:
        """Returns the tables that the steps need now and that are being loaded."""
        if not self.loader.running():
            return set()
        return self.loader.running(name for s in steps if s.checked is not None for name in s.checked.needs)

    def _step(self, step: Step, script: Script) -> Result:
        if step.claimed is not None:
            self.saved.unclaimed.pop(step.claimed.id, None)
            if self.text.in_file:
                self.saved.named.append(step.claimed.id)
            if step.anew is not None:
                self.saved.renew(step.claimed, step.anew, self.removals.store.journal)
            return self.emitted.results.get(step.claimed.name) or Result(pa.table({}), count=0)
        if step.ran is not None:
            self.text.pass_over(step.ran)
            return Result(pa.table({}), count=0)
        checked = step.checked
        assert checked is not None
        in_file = self.text.in_file
        if in_file and self.text.is_done(checked.statement):
            return Result(pa.table({}), count=0)
        if in_file:
            self.loader.wait(self._loading([step]))
        try:
            result = self._execute(checked, script)
        except Error as error:
            point_at_word(error, checked.statement)
            raise
        has_rows = result.count is None and not isinstance(result, RunningResult)
        if in_file and isinstance(checked, CheckedIndex):
            self.saved.named.append(f"index:{checked.index.name.lower()}")
        if in_file and self.on_answer is not None and has_rows:
            self.on_answer(checked.statement.text, result)
        return result

    def _execute(self, checked: Checked, script: Script) -> Result:
        """Runs a statement; if its target got other columns since the check, it is checked again."""
        for _ in range(_TRIES):
            try:
                return self.executor.execute(checked)
            except Outdated:
                target = checked.changes
                checked = self.checks.one(checked.statement, script.place)
                if checked.changes is target:
                    time.sleep(_PAUSE)  # a database has the columns already, and the catalog will soon
        return self.executor.execute(checked)


def _may_have_plan(text: str, params: Params) -> bool:
    """Returns whether the text of a client is looked up among plans."""
    values = params.values() if isinstance(params, Mapping) else params or ()
    return (
        len(text) <= _SHORT
        and "$" not in text
        and not any(isinstance(v, list | tuple | dict) for v in values)
    )
