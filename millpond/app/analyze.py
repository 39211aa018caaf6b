"""Runs EXPLAIN ANALYZE: measures the steps of a statement that ends, or reports those of a running one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from millpond.app.describe import Descriptions
from millpond.errors import AlreadyExists, SqlError
from millpond.loading.progress import Load
from millpond.plan.statement_plan import Planned
from millpond.query.plans import Way
from millpond.query.result import Result
from millpond.sql import statements as st
from millpond.sql.checked import Checked, CheckedExplain
from millpond.sql.identity import identity
from millpond.statements.queries import Queries
from millpond.statements.saved_statements import SavedStatements
from millpond.steps import Step, Steps, recording, size_text, step
from millpond.streaming.runner import Runner
from millpond.views.materialized_view import Views

Run = Callable[[Checked], Result]


@dataclass(frozen=True, eq=False, repr=False)
class Analysis:
    """Reports the costs of statements."""

    descriptions: Descriptions
    queries: Queries
    runner: Runner
    views: Views
    saved: SavedStatements
    loads: Mapping[str, Load]

    def analyze(self, checked: CheckedExplain, run: Run) -> pa.Table:
        """Returns the plan, and what its steps cost. ``run`` runs the statement."""
        inner, planned = checked.inner.statement, Planned.of(checked.inner)
        if isinstance(inner, st.NamedQuery):
            return self._looked(checked.statement, planned, self.queries.find(inner.name))
        lines = self.descriptions.plan_lines(planned)
        name = self._running(inner)
        there = checked.existing
        if name is None and there is not None:
            if getattr(inner, "if_not_exists", False):
                line = f'{there.kind} "{there.name}" exists: nothing was run'
                return self.descriptions.explained_table(checked.statement, planned, [*lines, line])
            raise AlreadyExists(
                f'{there.kind.capitalize()} "{there.name}" already exists: the statement cannot be run',
                hint="EXPLAIN shows its plan, EXPLAIN ANALYZE QUERY name what it took",
                place=inner.place,
            )
        if name is None and (checked.running or (checked.live and isinstance(inner, st.Select))):
            raise SqlError(
                "this statement runs for as long as the app, and is not running yet",
                hint="run it first, then EXPLAIN ANALYZE shows what it took; EXPLAIN shows its plan",
                place=inner.place,
            )
        if name is None:
            line, record = self._run(checked.inner, run)
            name = self._running(inner)
            if name is None:
                return self.descriptions.explained_table(checked.statement, planned, [*lines, line], record)
        return self._looked(checked.statement, planned, name, lines)

    def analyze_query(self, checked: CheckedExplain, run: Run) -> pa.Table:
        """Works as ``analyze``, for a query that ends."""
        way, planned = self.descriptions.way_of(checked.inner.statement), Planned.of(checked.inner)
        line, record = self._run(checked.inner, run, way)
        lines = [*self.descriptions.plan_lines(planned, way), line]
        return self.descriptions.explained_table(checked.statement, planned, lines, record)

    def _run(self, checked: Checked, run: Run, way: Way | None = None) -> tuple[str, Steps]:
        """Runs a statement. Returns a summary in words, and what its steps cost."""
        record = Steps()
        began = time.perf_counter()
        with recording(record):
            result = self._look_up(checked, way) if way is not None and way.who == "lookup" else None
            result = result or run(checked)
        rows = result.count if result.count is not None else result.to_arrow().num_rows
        return f"ran: {rows:,} rows in {(time.perf_counter() - began) * 1000:,.3f} ms", record

    def _look_up(self, checked: Checked, way: Way) -> Result | None:
        """Returns the rows that a lookup finds."""
        planned = self.descriptions.plan_of(checked.statement)
        if planned is None:
            return None
        plan, values = planned
        with step(f"look up in {way.why}") as noted:
            found: Result | None = plan.run(*values)
            if found is not None:
                noted.tell_of(found.to_arrow())
            return found

    def _running(self, statement: st.Statement) -> str | None:
        """Returns the name of the running query of the statement, or of the query that has filled its table."""
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
        """Returns the state of a query, in words, and what it has cost."""
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
            kept = view.by_changes
            line = (
                f"{view.state}, {view.rounds:,} rounds, {view.rows:,} rows changed since the app started;"
                f" {kept.rounds:,} rounds by changes, {kept.size:,} entries in the state of operators,"
                f" about {size_text(kept.bytes)}{f'; {kept.outgrown}: it is recomputed' if kept.outgrown else ''}"
            )
            return f"query {name}: {line}", list(view.steps)
        load = self.loads.get(name.partition(":")[2].lower()) if name.startswith("table:") else None
        if load is not None:
            return f"load of {name.partition(':')[2]}: {load.far()}", list(load.steps)
        return None

    def _looked(
        self, explain: st.Explain, planned: Planned, name: str, lines: Sequence[str] = ()
    ) -> pa.Table:
        """Returns the plan, and what a running query has cost."""
        line, steps = self._record(name) or (None, [])
        lines = [*lines, *([line] if line is not None else [])]
        return self.descriptions.explained_table(explain, planned, lines, steps)
