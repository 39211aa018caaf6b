"""Changes views in the commit that changes their inputs, so that no reader sees one without the other."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import pyarrow as pa

from millpond import faults
from millpond.changes import Changes
from millpond.errors import DataError, QueryFailed
from millpond.query.later import Later
from millpond.steps import recording, step
from millpond.store.change_feed import Touched
from millpond.store.store import Store
from millpond.tables.base import Snapshot
from millpond.views.live_view import LiveView


class KnownChanges(Touched):
    """Contains the changes of a table that is shown as it will be."""

    def between(self, before: Snapshot, now: Snapshot) -> tuple[pa.Table, pa.Table] | None:
        if isinstance(before, Later):  # the change is taken back
            gone, came = before.difference
            return came, gone
        return now.difference if isinstance(now, Later) else super().between(before, now)


class Round:
    """Contains the tables as they are, and as they will be after one commit."""

    def __init__(self, store: Store, inputs: Iterable[str]):
        self._store = store
        self._later: dict[str, Later] = {}
        self.before = {name: store.backend(name).snapshot() for name in inputs}
        self.touched: dict[str, Touched] = {}

    def add(self, name: str, change: Changes) -> None:
        """Adds changes of a table, by its name in lower case."""
        self._later[name] = Later(self.before[name], change)
        self.touched[name] = KnownChanges(self.before[name].schema)
        self.touched[name].add(change)

    def now(self, name: str) -> Snapshot:
        found = self._later.get(name.lower())  # a snapshot without rows is false
        return self.before[name.lower()] if found is None else found


class ViewsInCommits:
    """Finds what views get with a commit. Whoever calls it holds ``Store.writing``."""

    def __init__(self, store: Store):
        self._store = store
        self._views: tuple[LiveView, ...] = ()
        self._inputs: frozenset[str] = frozenset()
        self._changed: list[tuple[LiveView, bool, int]] = []
        self._round: Round | None = None

    def follow(self, views: Iterable[LiveView]) -> None:
        """Sets the views that change with their inputs; one that others read comes before them."""
        with self._store.writing:
            self._views = tuple(views)
            self._inputs = frozenset(name for view in self._views for name in view.tables)

    def reads(self, table: str) -> bool:
        return table in self._inputs

    def changes(self, changes: Mapping[str, Changes]) -> dict[str, Changes]:
        """Returns the changes of the views, by the names of their tables in lower case. Raises what a view raises."""
        self._changed = []
        round_ = self._round = Round(self._store, self._inputs)
        found: dict[str, Changes] = {}
        for name, change in changes.items():
            if name.lower() in self._inputs:
                round_.add(name.lower(), change)
        with step("change views in the same commit") as noted:
            for view in self._views:
                if not view.wanted:
                    view.whole = True
                elif view.tables & round_.touched.keys():
                    target, change = view.plan.target.name.lower(), self._changes(view, round_)
                    if len(change):
                        found[target] = change
                        if target in self._inputs:
                            round_.add(target, change)
            noted.tell(sum(map(len, found.values())))
        faults.reach("commit: views found")
        return found

    def _changes(self, view: LiveView, round_: Round) -> Changes:
        began, target = time.perf_counter(), view.plan.target.name
        self._changed.append((view, view.whole, 0))
        try:
            with recording(view.steps):
                change = view.changes(round_.now, round_.before, round_.touched)
                change = self._store.backend(target).check(change)
        except DataError as error:
            raise QueryFailed(
                f'table "{target}" changes in the same commit, and its query fails: {error.message}',
                hint=error.hint or "nothing was changed",
            ) from error
        self._changed[-1] = view, self._changed[-1][1], len(change)
        view.error, view.whole = None, False
        view.rounds += 1
        view.rows += len(change)
        view.milliseconds = round(1000 * (time.perf_counter() - began))
        return change

    def forget(self) -> None:
        """Records that the last changes were not committed: operators take them back."""
        round_ = self._round
        for view, whole, rows in self._changed:
            if whole or round_ is None:
                view.by_changes.forget()
            else:
                view.by_changes.take_back(round_.now, round_.before, round_.touched)
            view.whole = whole
            view.rows -= rows
        self._changed, self._round = [], None

    def settled(self) -> None:
        """Records that the last changes were committed."""
        self._changed, self._round = [], None
