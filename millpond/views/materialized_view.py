"""Maintains materialized views: tables that follow queries over tables.

A view hangs on the commits of its inputs. In a round all inputs are read as of one commit; a view that reads another
view sees that one as it is after its own step of the same round. What a view holds is made of its inputs alone, so that
a restart needs no position: the first round answers every query anew and applies the difference.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

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
from millpond.sql.catalog import Relation
from millpond.steps import Steps, recording, timed
from millpond.store.change_feed import Touched
from millpond.store.query_states import QueryStates
from millpond.store.store import Store, StoreSnapshot
from millpond.store.undo import Undo
from millpond.tables.base import Snapshot
from millpond.types import Column, Schema

log = logging.getLogger("millpond")

_FEW = 1_000
"""Parts that are always worth their lookups; more of them must be fewer than a quarter of the rows."""
Tables = Callable[[str], Snapshot]
Emit = Callable[[Changes], None]


class LiveView:
    """Keeps one table equal to its query."""

    def __init__(
        self,
        plan: ViewPlan,
        schema: Schema,
        store: Store,
        evaluator: Evaluator,
        side_inputs: Callable[[LiveView, Mapping[str, Relation]], SideInputs],
        emit: Emit | None = None,
    ):
        self.plan = plan
        self.schema = schema
        self.emit = emit
        """Is given what changes, once the table is filled."""
        self.tables = {i.relation.name.lower() for i in plan.query.inputs if i.relation.kind == "table"}
        self.error: Error | None = None
        self.held = State.RUNNING
        """What it was told: a view that is paused or stopped stays as it is."""
        self.steps = Steps()
        self.rounds = self.rows = 0
        self.milliseconds: int | None = None
        self.whole = True
        """The next round answers the query as a whole."""
        self.renewed = 0
        """How often a source that it reads has changed."""
        self._store = store
        self._evaluator = evaluator
        sources = {i.view: i.relation for i in plan.query.inputs if i.relation.kind == "source"}
        self.inputs = side_inputs(self, sources)

    def changes(self, now: Tables, before: Mapping[str, Snapshot], touched: Mapping[str, Touched]) -> Changes:
        """Returns what the table must take to be as its query says ``now``; it was right ``before``."""
        parts = None if self.whole else self._parts(now, before, touched)
        own = self._store.backend(self.plan.target.name).snapshot()
        keyed = bool(self.schema.key)
        if parts is None:
            inputs = {
                i.view: timed(f"read table {i.relation.name}", now(i.relation.name).scan)
                for i in self._table_inputs()
            }
            there = own.scan(rows=not keyed)
        else:
            assert self.plan.parts is not None
            inputs = {}
            for i in self._table_inputs():
                columns, name = list(self.plan.parts.inputs[i.view]), i.relation.name
                get = partial(now(name).get, columns, parts, nulls=True)
                inputs[i.view] = timed(f"look up in table {name}", get)
            there = own.get(list(self.plan.parts.columns), parts, nulls=True, rows=not keyed)
        rows = self._evaluator.answer(self.plan.query, {**inputs, **self.inputs.rows})
        rows = rows.cast(self.schema.arrow())
        return self._evaluator.difference(there, rows, self.schema.key)

    def _table_inputs(self) -> Iterator[Any]:
        return (i for i in self.plan.query.inputs if i.relation.kind == "table")

    def _parts(
        self, now: Tables, before: Mapping[str, Snapshot], touched: Mapping[str, Touched]
    ) -> pa.Table | None:
        """Returns the values of the dividing columns whose parts may have changed; None if that is not to be known,
        or if there are so many that the whole is cheaper."""
        if self.plan.parts is None:
            return None
        names = list(self.plan.parts.columns)
        types = pa.schema([self.schema.arrow().field(n) for n in names])
        found = []
        for i in self._table_inputs():
            name = i.relation.name
            change = touched.get(name.lower())
            if change is None:
                continue
            if change.everything or name.lower() not in before:
                return None
            rows, key = change.rows(), list(i.relation.schema.key)
            if key:
                rows = pa.concat_tables(
                    [t.get(key, rows, nulls=True) for t in (before[name.lower()], now(name))]
                )
            try:
                found.append(
                    rows.select(list(self.plan.parts.inputs[i.view])).rename_columns(names).cast(types)
                )
            except pa.ArrowInvalid:
                return None
        values = pa.concat_tables(found).group_by(names).aggregate([])
        size = max(len(now(i.relation.name)) for i in self._table_inputs())
        return values if values.num_rows <= max(_FEW, size // 4) else None

    @property
    def state(self) -> State:
        if self.held is State.RUNNING and self.error is not None:
            return State.FAILED
        return self.held

    @property
    def wanted(self) -> bool:
        """Whether it follows its inputs."""
        return self.held is State.RUNNING

    def check(self) -> None:
        """Raises the error of the last round."""
        if self.error is not None and self.wanted:
            raise self.error

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.plan.name,
            "state": str(self.state),
            "batches": self.rounds,
            "rows": self.rows,
            "last_batch_ms": self.milliseconds,
            "error": str(self.error) if self.error is not None else None,
            "statement": self.plan.text,
        }


class Views:
    """Maintains the live views of an app in one thread, which starts with the first of them."""

    def __init__(
        self,
        store: Store,
        evaluator: Evaluator,
        followers: Followers,
        held: QueryStates,
        mask: Mask,
        open_source: Callable[[Relation], Source],
        keep_copy: Callable[[Relation], None],
    ):
        self._store = store
        self._evaluator = evaluator
        self._followers = followers
        self._held = held
        self._mask = mask
        self._open_source = open_source
        self._keep_copy = keep_copy
        self._views: dict[str, LiveView] = {}
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
        """Gives what comes to the answer of a query from now on; its rows are kept in a table that nobody sees."""
        schema = plan.query.schema
        hidden = Schema(tuple(Column(f"c{i}", c.type) for i, c in enumerate(schema)))
        self._store.create_hidden(plan.target.name, hidden)

        def emit(changes: Changes) -> None:
            shown = told(changes, hidden, schema, plan.target.options.get("op"))
            if shown.num_rows:
                give(shown)

        renamed = dataclasses.replace(plan.query, schema=hidden)
        self.add(dataclasses.replace(plan, query=renamed, parts=find_parts(renamed)), hidden, emit=emit)

    def add(self, plan: ViewPlan, schema: Schema, *, restored: bool = False, emit: Emit | None = None) -> int:
        """Fills the table and follows the inputs from now on. Answers its number of rows.

        A query that fails is not taken; a ``restored`` one is, and tried again when its inputs change.
        """
        for i in plan.query.inputs:
            if i.relation.captured:
                self._keep_copy(i.relation)
        with self._turn:
            view = self._make(plan, schema, emit)
            view.held = State(self._held.get(plan.name) or State.RUNNING)
            self._views[plan.name] = view
            self._follow()
            faults.reach("view added")
            self._round()
            faults.reach("view filled")
            if view.error is not None and not restored:
                self.remove(plan.name)
                raise view.error
        if self._thread is None:
            self._store.listen(self._news.set)
            self._thread = threading.Thread(target=self._run, name="millpond-views", daemon=True)
            self._thread.start()
        if view.inputs.follows:
            self._followers.add(plan.name, view.inputs)
        return len(self._store.backend(plan.target.name))

    def _make(self, plan: ViewPlan, schema: Schema, emit: Emit | None) -> LiveView:
        return LiveView(plan, schema, self._store, self._evaluator, self._side_inputs, emit)

    def _side_inputs(self, view: LiveView, relations: Mapping[str, Relation]) -> SideInputs:
        return SideInputs(relations, self._open_source, self._mask, lambda name, rows: self.renew(view))

    def control(self, name: str, action: str, undo: Undo) -> None:
        """PAUSE, RESUME, STOP or START; a restart finds it as it was left."""
        with self._turn:
            view = self._views[name]
            state, before, held = asked(name, view.state, action), view.held, self._held.get(name)
            undo.on_failure(lambda: self._tell(view, before))
            undo.on_failure(lambda: self._held.set(name, held))
            if view.emit is None:
                self._held.set(name, None if state is State.RUNNING else str(state))
            faults.reach("query told")
            self._tell(view, state)
        if view.wanted:
            self._news.set()

    def _tell(self, view: LiveView, state: State) -> None:
        view.held, view.whole = state, True

    @contextmanager
    def between_rounds(self) -> Iterator[None]:
        """Does something while no view is brought up to date."""
        with self._turn:
            yield

    def replace(self, view: LiveView, plan: ViewPlan | None, schema: Schema) -> None:
        """An input of a view has other columns, and it may have another ``plan`` by that. Called between rounds; the
        next one answers the query as a whole."""
        if plan is not None:
            fresh = self._views[plan.name] = self._make(plan, schema, view.emit)
            fresh.held = view.held
            if fresh.inputs.follows:
                self._followers.add(plan.name, fresh.inputs)
        else:
            view.whole = True
        self._follow()

    def renew(self, view: LiveView) -> None:
        """A source that a view reads has changed: the view is answered as a whole."""
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
        """Ends after the round that runs; nothing is committed afterwards."""
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
                renewing = any(v.whole and v.error is None and v.wanted for v in self)
                if (self._seen >= wanted and not renewing) or self._stopped:
                    break
                if not self._progress.wait(min(0.5, max(0.0, deadline - time.monotonic()))) and (
                    time.monotonic() >= deadline
                ):
                    raise TimedOut(
                        f"not drained after {timeout:g} s: the views are behind",
                        hint="wait longer with drain(timeout=…)",
                    )
        for view in self:
            view.check()

    def _follow(self) -> None:
        own = {v.plan.target.name.lower() for v in self}
        names = {name for v in self for name in v.tables} - own
        self._store.follow({name: self._store.backend(name).schema for name in names})

    def _run(self) -> None:
        while not self._stopped:
            self._news.wait()
            self._news.clear()
            with self._turn:
                if not self._stopped:
                    self._round()

    def _round(self) -> None:
        snapshots, touched, commits = self._store.news()
        fresh: dict[str, Snapshot] = {}
        now = View(snapshots, fresh)
        for view in self._ordered():
            if not view.wanted:
                view.whole = True
            elif view.whole or view.tables & touched.keys():
                changes = self._step(view, now, touched)
                if changes is not None and len(changes):
                    target = view.plan.target.name
                    fresh[target.lower()] = self._store.backend(target).snapshot()
                    touched.setdefault(target.lower(), Touched(view.schema)).add(changes)
        # A table of a database is not held: only the whole query tells what a change there did.
        names = {name for view in self for name in view.tables}
        self._before = {n: now.snapshot(n) for n in names if self._store.backend(n).database is None}
        with self._progress:
            self._seen = commits
            self._progress.notify_all()

    def _step(self, view: LiveView, now: StoreSnapshot, touched: Mapping[str, Touched]) -> Changes | None:
        """Returns what a view has changed; None if its query failed."""
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
        view.error, view.whole = None, view.renewed != renewed
        if view.emit is not None and view.rounds and len(changes):
            view.emit(changes)
        view.rounds += 1
        view.rows += len(changes)
        view.milliseconds = round(1000 * (time.perf_counter() - began))
        return changes

    def _ordered(self) -> list[LiveView]:
        """Those that others read come first."""
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


def told(changes: Changes, hidden: Schema, schema: Schema, op: str | None) -> pa.Table:
    """Returns what someone who reads along is given: the rows that come, or, with a column ``op``, also those that
    go."""
    put = changes.put.select(list(hidden.names)).rename_columns(list(schema.names))
    if op is None:
        return put
    deleted = changes.deleted
    gone = changes.rows.filter(deleted) if deleted is not None else changes.rows.slice(0, 0)
    gone = gone.select(list(hidden.names)).rename_columns(list(schema.names))
    return pa.concat_tables([with_op(gone, op, "delete"), with_op(put, op, "insert")])
