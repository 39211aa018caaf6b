"""EXPLAIN ANALYZE: what the steps of a statement took. One that ends is run for it; one that runs is looked at."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.app.describe import explained_table, plan_lines
from millpond.app.lookups import lookup_columns
from millpond.errors import SqlError
from millpond.query.result import Result
from millpond.sql import statements as st
from millpond.sql.checked import Checked
from millpond.sql.identity import identity
from millpond.steps import Step, Steps, recording, step

if TYPE_CHECKING:
    from millpond.app.app import App

Run = Callable[[Checked], Result]


def analyze(app: App, checked: Checked, run: Run) -> pa.Table:
    """The plan, and what its steps took. ``run`` runs the statement."""
    explain = checked.statement
    assert isinstance(explain, st.Explain)
    inner = explain.statement
    if isinstance(inner, st.NamedQuery):
        return _looked(app, checked, app._queries.find(inner.name))
    lines = plan_lines(app, checked)
    name = _running(app, inner)
    if name is None and (checked.running or (checked.live and isinstance(inner, st.Select))):
        raise SqlError(
            "this statement runs for as long as the app, and is not running yet",
            hint="run it, then EXPLAIN ANALYZE tells what it has taken; EXPLAIN tells its plan",
            place=inner.place,
        )
    if name is None:
        told, record = _run(app, dataclasses.replace(checked, statement=inner), run)
        name = _running(app, inner)
        if name is None:
            return explained_table(app, checked, [*lines, told], record)
    return _looked(app, checked, name, lines)


def answer_analyzed(app: App, checked: Checked, run: Run) -> pa.Table:
    """As ``analyze``, of a query that reads tables only."""
    explain = checked.statement
    assert isinstance(explain, st.Explain)
    told, record = _run(app, dataclasses.replace(checked, statement=explain.statement), run)
    return explained_table(app, checked, [*plan_lines(app, checked), told], record)


def _run(app: App, checked: Checked, run: Run) -> tuple[str, Steps]:
    """Runs a statement; what it gave, in words, and what its steps took."""
    record, statement = Steps(), checked.statement
    by = lookup_columns(app, statement.text) if isinstance(statement, st.Select) else ()
    began = time.perf_counter()
    with recording(record):
        result = _look_up(app, checked, by) if by else None
        result = result or run(checked)
    rows = result.count if result.count is not None else result.to_arrow().num_rows
    return f"ran: {rows:,} rows in {(time.perf_counter() - began) * 1000:,.3f} ms", record


def _look_up(app: App, checked: Checked, by: Sequence[str]) -> Result | None:
    """The answer of an index."""
    assert checked.resolved is not None
    table = checked.resolved.inputs[0].relation.name
    with step(f"look up in table {table} by {', '.join(by)}") as noted:
        found = app._plans.find(checked.statement.text, None)
        if found is not None:
            noted.tell_of(found.to_arrow())
        return found


def _running(app: App, statement: st.Statement) -> str | None:
    """The name of the query that the statement keeps running, or of the one that has filled its table."""
    wanted = identity(statement)
    for entry in app._saved.values():
        if entry.identity == wanted and entry.kind != "index":
            name = entry.name if entry.kind == "query" else f"{entry.kind}:{entry.name}"
            if _record(app, name) is not None:
                return name
    texts = {p.plan.text: p.plan.query for p in app._runner} | {v.plan.text: v.plan.name for v in app._views}
    return texts.get(statement.text)


def _record(app: App, name: str) -> tuple[str, list[Step]] | None:
    """How a query is, in words, and what it has taken."""
    parts = [p for p in app._runner if p.plan.query == name]
    if parts:
        steps = [s for p in parts for s in p.steps]
        state = parts[-1].state
        batches, rows = sum(p.batches for p in parts), parts[-1].rows_out
        return f"query {name}: {state}, {batches:,} batches, {rows:,} rows out since the app started", steps
    view = app._views.get(name)
    if view is not None:
        told = f"{view.state}, {view.rounds:,} rounds, {view.rows:,} rows changed since the app started"
        return f"query {name}: {told}", list(view.steps)
    load = app._loads.get(name.partition(":")[2].lower()) if name.startswith("table:") else None
    if load is not None:
        return f"load of {name.partition(':')[2]}: {load.far()}", list(load.steps)
    return None


def _looked(app: App, checked: Checked, name: str, plan: Sequence[str] = ()) -> pa.Table:
    """The plan, and what a running query has taken."""
    told, steps = _record(app, name) or (None, [])
    return explained_table(app, checked, [*plan, *([told] if told is not None else [])], steps)
