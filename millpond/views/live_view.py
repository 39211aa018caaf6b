"""Keeps one table equal to its query: finds the changes that it needs when inputs have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from millpond.changes import Changes
from millpond.engine.states import State
from millpond.errors import Error
from millpond.loading.side_inputs import SideInputs
from millpond.plan.plans import ViewPlan
from millpond.query.evaluate import Answer, Evaluator
from millpond.sql.catalog import Relation
from millpond.sql.columns_read import columns_read
from millpond.steps import Steps, timed
from millpond.store.change_feed import Touched
from millpond.store.store import Store
from millpond.tables.base import Snapshot
from millpond.types import Schema
from millpond.views.costs import Costs
from millpond.views.kept_by_changes import KeptByChanges, Tables

_FEW, _SHARE = 100, 400
"""The number of parts that are always worth their lookups; a larger number must be under this share of the rows."""
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
        """Receives the changes, once the table is filled."""
        self.tables = {i.relation.name.lower() for i in plan.query.inputs if i.relation.kind == "table"}
        self.error: Error | None = None
        self.requested = State.RUNNING
        """The requested state: a view that is paused or stopped stays as it is."""
        self.steps = Steps()
        self.rounds = self.rows = 0
        self.milliseconds: int | None = None
        self.whole = True
        """Whether the next round runs the whole query."""
        self.renewed = 0
        """How often a source that it reads has changed."""
        self._store = store
        self._evaluator = evaluator
        sources = {i.view: i.relation for i in plan.query.inputs if i.relation.kind == "source"}
        self.inputs = side_inputs(self, sources)
        self._answer: Answer | None = None
        self._read = columns_read(plan.query)
        self._costs = Costs()
        self.by_changes = KeptByChanges(plan, schema, evaluator, self._costs)

    def changes(self, now: Tables, before: Mapping[str, Snapshot], touched: Mapping[str, Touched]) -> Changes:
        """Returns the changes that make the table equal to its query as of ``now``; it was equal as of ``before``."""
        own = self._store.backend(self.plan.target.name).snapshot()
        if self.plan.refresh == "full":
            return self._recomputed(now, own, None)
        whole = self.whole
        if whole:
            self.by_changes.forget()
        found = None if whole else self.by_changes.changes(now, before, touched, own)
        if found is not None:
            return found
        parts = None if whole else self._parts(now, before, touched, own)
        changes = self._recomputed(now, own, parts) if whole else self._timed(now, own, parts)
        self.by_changes.load(now, touched, own, whole=whole)
        return changes

    def _timed(self, now: Tables, own: Snapshot, parts: pa.Table | None) -> Changes:
        """Recomputes, and learns what that takes. The first time of all is no measure: nothing is there yet."""
        rows = self._rows(now)
        if parts is None:
            with self._costs.learn_whole(rows, len(own)):
                return self._recomputed(now, own, None)
        with self._costs.learn_parts(_share(parts.num_rows, own) * rows, parts.num_rows):
            return self._recomputed(now, own, parts)

    def _recomputed(self, now: Tables, own: Snapshot, parts: pa.Table | None) -> Changes:
        """Evaluates the query, of the rows with these parts or of all rows, and compares."""
        keyed = bool(self.schema.key)
        if parts is None:
            inputs = {
                i.view: timed(
                    f"read table {i.relation.name}", partial(now(i.relation.name).scan, self._read[i.view])
                )
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
        if self._answer is None:
            self._answer = self._evaluator.answers(self.plan.query)
        rows = self._answer({**inputs, **self.inputs.rows}).cast(self.schema.arrow())
        return self._evaluator.difference(there, rows, self.schema.key)

    def _table_inputs(self) -> Iterator[Any]:
        return (i for i in self.plan.query.inputs if i.relation.kind == "table")

    def _parts(
        self, now: Tables, before: Mapping[str, Snapshot], touched: Mapping[str, Touched], own: Snapshot
    ) -> pa.Table | None:
        """Returns the values of the dividing columns whose parts may have changed; None if they cannot be known, or if
        there are so many that the whole query is cheaper.
        """
        if self.plan.parts is None:
            return None
        most = min(sum(len(touched[n]) for n in self.tables & touched.keys()), len(own))
        tables = frozenset(self.tables & touched.keys())
        if self._too_many(self._costs.found(tables, most), now, own):
            return None
        names = list(self.plan.parts.columns)
        types = pa.schema([self.schema.arrow().field(n) for n in names])
        found = []
        for i in self._table_inputs():
            name = i.relation.name
            change = touched.get(name.lower())
            if change is None:
                continue
            key = list(i.relation.schema.key)
            if change.everything or name.lower() not in before or not (key or change.only_added):
                return None
            rows = change.rows()
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
        self._costs.learn_found(tables, most, values.num_rows)
        return None if self._too_many(values.num_rows, now, own) else values

    def _too_many(self, parts: float, now: Tables, own: Snapshot) -> bool:
        """Returns whether the whole query is cheaper than so many parts."""
        size = max(len(now(i.relation.name)) for i in self._table_inputs())
        if parts > max(_FEW, size // _SHARE):
            return True
        rows = self._rows(now)
        return self._costs.parts(_share(parts, own) * rows, parts) > self._costs.whole(rows, len(own))

    def _rows(self, now: Tables) -> int:
        return sum(len(now(i.relation.name)) for i in self._table_inputs())

    @property
    def state(self) -> State:
        if self.requested is State.RUNNING and self.error is not None:
            return State.FAILED
        return self.requested

    @property
    def wanted(self) -> bool:
        """Returns whether it follows its inputs."""
        return self.requested is State.RUNNING

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


def _share(parts: float, own: Snapshot) -> float:
    """Returns about which share of all rows belongs to so many parts, if each has one row in the table."""
    return min(1.0, parts / max(1, len(own)))
