"""Maintains materialized views: tables that are kept equal to queries over tables.

A view follows the commits of its inputs. A round reads all inputs as of one commit; a view that reads another view sees
the result of that view in the same round. The rows of a view come from its inputs alone, so a restart needs no
position: the first round runs the queries again and applies the difference, except for views that are recorded as equal
to their queries and whose inputs have not changed since. The state of operators is set after the start. A view that
failed is tried again: with the next commit, or after a pause.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

import pyarrow as pa

from millpond import faults
from millpond.changes import Changes
from millpond.connectors.source import Source
from millpond.engine.states import State, asked
from millpond.errors import Closed, Error, TimedOut, known
from millpond.loading.followers import Followers, Mask
from millpond.loading.side_inputs import SideInputs
from millpond.plan.plans import ViewPlan
from millpond.plan.view import find_parts
from millpond.query.change_kind import with_op
from millpond.query.evaluate import Evaluator
from millpond.query.transaction import View
from millpond.retry import AGAIN
from millpond.sql.catalog import Relation
from millpond.sql.incremental.tree import keep_by_changes
from millpond.steps import recording
from millpond.store.change_feed import Touched
from millpond.store.query_states import QueryStates
from millpond.store.snapshot import StoreSnapshot
from millpond.store.store import Store
from millpond.store.undo import Undo
from millpond.tables.base import Snapshot
from millpond.types import Column, Schema
from millpond.views.equal_views import EqualViews
from millpond.views.in_commits import ViewsInCommits
from millpond.views.live_view import Emit, LiveView

log = logging.getLogger("millpond")
_LAST_COMMIT = 5.0
"""Seconds that the end of an app waits for a commit that is under way."""
_QUIET = 1.0
"""Seconds without a commit after which it is recorded which views are equal to their queries."""


class Views:
    """Maintains the materialized views of an app in one thread, which starts with the first of them."""

    def __init__(
        self,
        store: Store,
        evaluator: Evaluator,
        followers: Followers,
        query_states: QueryStates,
        mask: Mask,
        open_source: Callable[[Relation], Source],
        keep_copy: Callable[[Relation], None],
    ):
        self._store = store
        self._evaluator = evaluator
        self._followers = followers
        self._query_states = query_states
        self._mask = mask
        self._open_source = open_source
        self._keep_copy = keep_copy
        self._views: dict[str, LiveView] = {}
        self.marks = EqualViews(store, evaluator.version)
        self._in_commits = ViewsInCommits(store)
        store.dependents = self._in_commits
        self._before: dict[str, Snapshot] = {}
        self._seen = 0
        self._turn = threading.RLock()
        self._news = threading.Event()
        self._progress = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def __iter__(self) -> Iterator[LiveView]:
        return iter(list(self._views.values()))

    def get(self, name: str) -> LiveView | None:
        return self._views.get(name)

    def add_emitting(self, plan: ViewPlan, give: Callable[[pa.Table], object]) -> None:
        """Emits the later changes of a query's result; its rows are in a hidden table."""
        schema = plan.query.schema
        hidden = Schema(tuple(Column(f"c{i}", c.type) for i, c in enumerate(schema)))
        self._store.create_hidden(plan.target.name, hidden)

        def emit(changes: Changes) -> None:
            shown = rows_to_emit(changes, hidden, schema, plan.target.options.get("op"))
            if shown.num_rows:
                give(shown)

        renamed = dataclasses.replace(plan.query, schema=hidden)
        plan = dataclasses.replace(
            plan, query=renamed, parts=find_parts(renamed), by_changes=keep_by_changes(renamed)
        )
        self.add(plan, hidden, emit=emit)

    def add(self, plan: ViewPlan, schema: Schema, *, restored: bool = False, emit: Emit | None = None) -> int:
        """Fills the table and follows the inputs from now on. Returns its number of rows.

        A query that fails is not added; a ``restored`` one is, and is tried again.
        """
        for i in plan.query.inputs:
            if i.relation.captured:
                self._keep_copy(i.relation)
        with self._turn:
            view = self._make(plan, schema, emit)
            view.requested = State(self._query_states.get(plan.name) or State.RUNNING)
            with self._store.writing if plan.in_commit else nullcontext():
                self._views[plan.name] = view
                self._follow()
                faults.reach("view added")
                if restored:
                    view.by_changes.start_later()
                if restored and view.wanted and self.marks.cover(view):
                    view.whole, view.by_changes.due = False, True
                self._fill(view)
            faults.reach("view filled")
            if view.error is not None and not restored:
                self.remove(plan.name)
                raise view.error
        if self._thread is None:
            self._store.visibility.listen(self._news.set)
            self._news.set()  # a thread that follows a database may have committed since the round
            self._thread = threading.Thread(target=self._run, name="millpond-views", daemon=True)
            self._thread.start()
        if view.inputs.follows:
            self._followers.add(plan.name, view.inputs)
        if view.by_changes.due:
            self._news.set()
        return len(self._store.backend(plan.target.name))

    def _fill(self, view: LiveView) -> None:
        """Makes a view equal to its query: one that changes with its inputs now, others in a round."""
        if not view.plan.in_commit:
            self._round()
        elif view.wanted and view.whole:
            with self._store.writing:
                self._step(view, self._store.snapshots(), {})

    def _make(self, plan: ViewPlan, schema: Schema, emit: Emit | None) -> LiveView:
        return LiveView(plan, schema, self._store, self._evaluator, self._side_inputs, emit)

    def _side_inputs(self, view: LiveView, relations: Mapping[str, Relation]) -> SideInputs:
        return SideInputs(relations, self._open_source, self._mask, lambda name, rows: self.renew(view))

    def control(self, name: str, action: str, undo: Undo) -> None:
        """Runs PAUSE, RESUME, STOP or START; the state survives a restart. A view that changes with its inputs is
        filled first: if its query fails, it stays as it was.
        """
        with self._turn:
            view = self._views[name]
            state, before, stored = (
                asked(name, view.state, action),
                view.requested,
                self._query_states.get(name),
            )
            undo.on_failure(lambda: self._tell(view, before))
            undo.on_failure(lambda: self._query_states.set(name, stored))
            if view.emit is None:
                self._query_states.set(name, None if state is State.RUNNING else str(state))
            faults.reach("query told")
            self._tell(view, state)
            if view.plan.in_commit and view.wanted:
                self._fill(view)
                if view.error is not None:
                    error, view.error = view.error, None
                    raise error
        if view.wanted:
            self._news.set()

    def _tell(self, view: LiveView, state: State) -> None:
        view.requested, view.whole = state, True

    @contextmanager
    def between_rounds(self) -> Iterator[None]:
        """Runs a function while no view is updated."""
        with self._turn:
            yield

    def replace(self, view: LiveView, plan: ViewPlan | None, schema: Schema) -> None:
        """Gives a view its new ``plan``, if it has one, after an input got other columns. Called between rounds; the
        next one runs the whole query.
        """
        if plan is not None:
            fresh = self._views[plan.name] = self._make(plan, schema, view.emit)
            fresh.requested = view.requested
            if fresh.inputs.follows:
                self._followers.add(plan.name, fresh.inputs)
            view = fresh
        else:
            view.whole = True
        self._follow()
        if view.plan.in_commit:
            self._fill(view)

    def renew(self, view: LiveView) -> None:
        """Runs the whole query of a view in the next round: a source that it reads has changed."""
        view.renewed += 1
        view.whole = True
        self._news.set()

    def remove(self, name: str) -> None:
        self._followers.remove(name)
        with self._turn:
            view = self._views.pop(name, None)
            if view is None:
                return
            self._follow()
            if view.plan.target.kind == "emit":
                self._store.drop(view.plan.target.name)

    def users(self, table: str) -> list[LiveView]:
        """Returns the views that read a table."""
        return [v for v in self if table.lower() in v.tables]

    def close(self) -> None:
        """Stops after the current round; nothing is committed afterwards."""
        self._stopped = True
        self._news.set()
        with self._turn, self._progress:
            self._progress.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def drain(self, timeout: float) -> None:
        """Waits until every commit so far has reached the views."""
        if not self._views:
            return
        wanted, deadline = self._store.feed.commits, time.monotonic() + timeout
        while True:
            with self._progress:
                renewing = any(v.whole and v.error is None and v.wanted for v in self._later())
                preparing = any(v.by_changes.due for v in self)
                if (self._seen >= wanted and not renewing and not preparing) or self._stopped:
                    break
                if preparing:
                    self._news.set()  # what became due without a commit, such as by one that was refused
                if not self._progress.wait(min(0.5, max(0.0, deadline - time.monotonic()))) and (
                    time.monotonic() >= deadline
                ):
                    raise TimedOut(
                        f"not drained after {timeout:g} s: the views are behind",
                        hint="wait longer with drain(timeout=…)",
                    )
        for view in self:
            view.check()

    def _later(self) -> list[LiveView]:
        """Returns the views that follow the commits of their inputs."""
        return [v for v in self if not v.plan.in_commit]

    def _follow(self) -> None:
        self._in_commits.follow(v for v in self._ordered() if v.plan.in_commit)
        own = {v.plan.target.name.lower() for v in self._later()}
        names = {name for v in self._later() for name in v.tables} - own
        # A table that is being renamed is no longer there: the view gets its new name before the next round.
        there = {name: table.schema for name in names if (table := self._store.table(name)) is not None}
        self._store.follow(there)

    def _run(self) -> None:
        recorded, retries = False, 0
        while not self._stopped:
            failed = any(v.whole and v.error is not None and v.wanted for v in self._later())
            pause = AGAIN.pause(retries) if failed else None if recorded else _QUIET
            if not self._news.wait(pause) and not failed:
                with self._turn:
                    recorded = self._stopped or self.record_equal(0.0)
                continue
            recorded, retries = False, retries + 1 if failed else 0
            self._news.clear()
            with self._turn:
                if not self._stopped:
                    self._round()
            self._prepare()

    def _prepare(self) -> None:
        """Sets the states of operators that are due, and builds indexes, while no change waits for them."""
        for view in self:
            kept = view.by_changes
            if kept.due or (kept.unindexed and not self._news.is_set()):
                with self._turn, self._store.writing if view.plan.in_commit else nullcontext():
                    if not self._stopped:
                        self._set_state(view)
                with self._progress:
                    self._progress.notify_all()

    def _set_state(self, view: LiveView) -> None:
        own, inputs = self._store.backend(view.plan.target.name).snapshot(), self._before
        if view.plan.in_commit:
            inputs = {name: self._store.backend(name).snapshot() for name in view.tables}
        try:
            if view.by_changes.due:
                view.by_changes.prepare(inputs, own)
            else:
                view.by_changes.build_indexes(inputs, own)
        except Error as error:
            view.error, view.whole = error, True

    def record_equal(self, wait: float = _LAST_COMMIT) -> bool:
        """Records which views are equal to their queries, for the next start. A commit of another thread that is under
        way is waited for; returns False after one that takes longer than so many seconds, and nothing is recorded.
        """
        if self._store.visibility.stopped is not None:
            return True
        with self._store.writing.within(wait) as entered:
            if entered:
                later = self._seen >= self._store.feed.commits
                found = (v for v in self if v.wanted and v.error is None and not v.whole)
                try:
                    self.marks.write(v for v in found if later or v.plan.in_commit)
                except Error as error:
                    log.warning("the next start evaluates all views again: %s", self._mask(error.message))
            return entered

    def _round(self) -> None:
        snapshots, touched, commits = self._store.news()
        fresh: dict[str, Snapshot] = {}
        now = View(snapshots, fresh)
        for view in self._ordered():
            if view.plan.in_commit:
                continue
            if not view.wanted:
                view.whole = True
            elif view.whole or view.tables & touched.keys():
                changes = self._step(view, now, touched)
                if changes is not None and len(changes):
                    target = view.plan.target.name
                    fresh[target.lower()] = self._store.backend(target).snapshot()
                    touched.setdefault(target.lower(), Touched(view.schema)).add(changes)
        # A table of a database has no stable snapshot: only the whole query shows what a change there did.
        names = {name for view in self._later() for name in view.tables}
        self._before = {n: now.snapshot(n) for n in names if self._store.backend(n).database is None}
        with self._progress:
            self._seen = commits
            self._progress.notify_all()

    def _step(self, view: LiveView, now: StoreSnapshot, touched: Mapping[str, Touched]) -> Changes | None:
        """Returns the changes of a view; None if its query failed."""
        began, target, renewed = time.perf_counter(), view.plan.target.name, view.renewed
        try:
            with recording(view.steps):
                changes = view.changes(now.snapshot, self._before, touched)
                if len(changes):
                    self._store.commit({target: changes})
        except Exception as error:
            view.whole = True
            if isinstance(error, Closed):
                return None
            view.error = known(error)
            view.error.place = view.error.place or view.plan.place
            log.warning('table "%s" stays as it was: %s', target, self._mask(view.error.message))
            return None
        if view.whole:
            view.by_changes.settle(self._store.backend(target).snapshot())
        view.error, view.whole = None, view.renewed != renewed
        if view.emit is not None and view.rounds and len(changes):
            view.emit(changes)
        view.rounds += 1
        view.rows += len(changes)
        view.milliseconds = round(1000 * (time.perf_counter() - began))
        return changes

    def _ordered(self) -> list[LiveView]:
        """Returns the views in order: those that others read come first."""
        by_target = {v.plan.target.name.lower(): v for v in self}
        ordered: list[LiveView] = []

        def visit(view: LiveView) -> None:
            if view not in ordered:
                for name in sorted(view.tables & by_target.keys()):
                    visit(by_target[name])
                ordered.append(view)

        for view in self:
            visit(view)
        return ordered


def rows_to_emit(changes: Changes, hidden: Schema, schema: Schema, op: str | None) -> pa.Table:
    """Returns what a reader receives: the inserted rows, or, with a column ``op``, also the deleted ones."""
    put = changes.put.select(list(hidden.names)).rename_columns(list(schema.names))
    if op is None:
        return put
    deleted = changes.deleted
    gone = changes.rows.filter(deleted) if deleted is not None else changes.rows.slice(0, 0)
    gone = gone.select(list(hidden.names)).rename_columns(list(schema.names))
    return pa.concat_tables([with_op(gone, op, "delete"), with_op(put, op, "insert")])
