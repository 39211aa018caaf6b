"""Runs EXPLAIN ANALYZE: measures the steps of a statement that ends, or reports those of one that runs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from millpond.app.describe import Descriptions
from millpond.app.plans import Planner
from millpond.app.queries import Queries
from millpond.app.saved import SavedStatements
from millpond.errors import SqlError
from millpond.loading.progress import Load
from millpond.query.result import Result
from millpond.sql import statements as st
from millpond.sql.checked import Checked
from millpond.sql.identity import identity
from millpond.steps import Step, Steps, recording, step
from millpond.streaming.runner import Runner
from millpond.views.materialized_view import Views

Run = Callable[[Checked], Result]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Analysis:
    """Tells what statements take."""

    descriptions: Descriptions
    planner: Planner
    find_plan: Callable[[str], Result | None]
    queries: Queries
    runner: Runner
    views: Views
    saved: SavedStatements
    loads: Mapping[str, Load]

    def analyze(self, checked: Checked, run: Run) -> pa.Table:
        """Returns the plan, and what its steps took. ``run`` runs the statement."""
        explain = checked.statement
        assert isinstance(explain, st.Explain)
        inner = explain.statement
        if isinstance(inner, st.NamedQuery):
            return self._looked(checked, self.queries.find(inner.name))
        lines = self.descriptions.plan_lines(checked)
        name = self._running(inner)
        if name is None and (checked.running or (checked.live and isinstance(inner, st.Select))):
            raise SqlError(
                "this statement runs for as long as the app, and is not running yet",
                hint="run it first, then EXPLAIN ANALYZE shows what it took; EXPLAIN shows its plan",
                place=inner.place,
            )
        if name is None:
            told, record = self._run(dataclasses.replace(checked, statement=inner), run)
            name = self._running(inner)
            if name is None:
                return self.descriptions.explained_table(checked, [*lines, told], record)
        return self._looked(checked, name, lines)

    def analyze_query(self, checked: Checked, run: Run) -> pa.Table:
        """As ``analyze``, of a query that reads tables only."""
        explain = checked.statement
        assert isinstance(explain, st.Explain)
        told, record = self._run(dataclasses.replace(checked, statement=explain.statement), run)
        return self.descriptions.explained_table(
            checked, [*self.descriptions.plan_lines(checked), told], record
        )

    def _run(self, checked: Checked, run: Run) -> tuple[str, Steps]:
        """Runs a statement; what it gave, in words, and what its steps took."""
        record, statement = Steps(), checked.statement
        by = self.planner.lookup_columns(statement.text) if isinstance(statement, st.Select) else ()
        began = time.perf_counter()
        with recording(record):
            result = self._look_up(checked, by) if by else None
            result = result or run(checked)
        rows = result.count if result.count is not None else result.to_arrow().num_rows
        return f"ran: {rows:,} rows in {(time.perf_counter() - began) * 1000:,.3f} ms", record

    def _look_up(self, checked: Checked, by: Sequence[str]) -> Result | None:
        """Returns the answer of an index."""
        assert checked.resolved is not None
        table = checked.resolved.inputs[0].relation.name
        with step(f"look up in table {table} by {', '.join(by)}") as noted:
            found = self.find_plan(checked.statement.text)
            if found is not None:
                noted.tell_of(found.to_arrow())
            return found

    def _running(self, statement: st.Statement) -> str | None:
        """Returns the name of the query that the statement keeps running, or of the one that has filled its table."""
        wanted = identity(statement)
        for entry in self.saved.entries.values():
            if entry.identity == wanted and entry.kind != "index":
                name = entry.name if entry.kind == "query" else f"{entry.kind}:{entry.name}"
                if self._record(name) is not None:
                    return name
        texts = {p.plan.text: p.plan.query for p in self.runner} | {
            v.plan.text: v.plan.name for v in self.views
        }
        return texts.get(statement.text)

    def _record(self, name: str) -> tuple[str, list[Step]] | None:
        """Returns how a query is, in words, and what it has taken."""
        parts = [p for p in self.runner if p.plan.query == name]
        if parts:
            steps = [s for p in parts for s in p.steps]
            state = parts[-1].state
            batches, rows = sum(p.batches for p in parts), parts[-1].rows_out
            return (
                f"query {name}: {state}, {batches:,} batches, {rows:,} rows out since the app started",
                steps,
            )
        view = self.views.get(name)
        if view is not None:
            told = f"{view.state}, {view.rounds:,} rounds, {view.rows:,} rows changed since the app started"
            return f"query {name}: {told}", list(view.steps)
        load = self.loads.get(name.partition(":")[2].lower()) if name.startswith("table:") else None
        if load is not None:
            return f"load of {name.partition(':')[2]}: {load.far()}", list(load.steps)
        return None

    def _looked(self, checked: Checked, name: str, plan: Sequence[str] = ()) -> pa.Table:
        """Returns the plan, and what a running query has taken."""
        told, steps = self._record(name) or (None, [])
        return self.descriptions.explained_table(
            checked, [*plan, *([told] if told is not None else [])], steps
        )
