"""Restart: what a state directory holds becomes a running app again."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.app.indexes import restore_index
from millpond.connectors.source import ticks
from millpond.errors import Error, SourceError
from millpond.loading.discovered_columns import COLUMNS, take_doubles
from millpond.loading.followers import News
from millpond.loading.progress import Load
from millpond.plan.load import plan_load
from millpond.plan.pipeline import plan_block, plan_pipeline
from millpond.plan.view import plan_view
from millpond.sql import statements as st
from millpond.sql.blocks import grouped
from millpond.sql.checked import Checked
from millpond.sql.parse import parse
from millpond.store.catalog import Saved, options_of, relation_of
from millpond.store.dropped_tables import LEAVING
from millpond.store.query_states import HELD
from millpond.store.undo import Unit
from millpond.streaming.delivery import IDENTITY

if TYPE_CHECKING:
    from millpond.app.app import App

log = logging.getLogger("millpond")


def restore(app: App) -> None:
    """Puts back what the state directory holds: first what rows are in, then what fills them."""
    for raw in app._journal.entries():
        if raw.kind == HELD:
            app._held.restore(raw.name, raw.data["state"])
            continue
        if raw.kind == COLUMNS:
            app._columns.restore(raw)
            continue
        if raw.kind == LEAVING:
            app._leaving.restore(raw)
            continue
        if raw.kind == IDENTITY:
            continue
        entry = Saved.of(raw)
        app._saved[entry.id] = entry
        app._unclaimed[entry.id] = entry
        if entry.kind == "index":
            restore_index(app, parse(entry.text).require()[0])
        elif entry.kind != "query":
            parsed = parse(entry.text)
            app._open(relation_of(entry, parsed), options_of(entry, parsed))
    if app._read_only:
        return
    app._leaving.finish()
    with app._rooms.hasty():
        for entry in list(app._saved.values()):
            resume(app, entry)


def resume(app: App, entry: Saved) -> None:
    """A restored statement goes on: a load that was cut off, a pipeline that ran. One that cannot stays as it was."""
    try:
        _go_on(app, entry)
    except Error as error:
        if entry.kind == "table":
            _failed(app, entry, error)
        else:
            _stall(app, entry, error)


def _failed(app: App, entry: Saved, error: Error) -> None:
    """What fills a table could not go on: the table stays, and if its source was the reason that is tried again."""
    _stays(app, entry.name, app._mask(error.message))
    if isinstance(error, SourceError):
        app._living.add(entry.name.lower(), Revival(app, entry))


def _stall(app: App, entry: Saved, error: Error) -> None:
    """A query, or what fills a stream, could not go on: it is tried again if that may pass, or if somebody asks."""

    def again() -> None:
        # Who drops the query holds the lock and may wait for this: it is tried again.
        if not app._lock.acquire(timeout=0.2):
            return
        try:
            resume(app, entry)
        finally:
            app._lock.release()

    app._runner.starter.stall(_query_of(entry), entry.text, error, again)


def _query_of(entry: Saved) -> str:
    return entry.name if entry.kind == "query" else f"{entry.kind}:{entry.name}"


def _go_on(app: App, entry: Saved) -> None:
    parsed = parse(entry.text)
    app._remember(parsed.script)
    statement = grouped(parsed.require())[0]
    query = getattr(statement, "query", None)
    connected = isinstance(statement, st.CreateStream) and query is None
    if entry.kind in ("view", "index") or (query is None and not connected and entry.kind != "query"):
        return
    if isinstance(statement, st.CreateTable | st.CreateView) and entry.options.get("refresh") == "once":
        target = app._catalog.find(entry.name)
        if target is not None and app._table_loads.keep_loaded(_query_of(entry), target, statement):
            return
    # It goes on with the columns that it knew; new ones it takes in as ever.
    checked = app._checks.kept(entry, statement, parsed.script.place, entry.widths)
    app._sources.values.update(checked.source_options)
    target = checked.target
    known = app._catalog.find(target.name) if target is not None else None
    if target is not None and known is not None and known.schema != target.schema:
        if take_doubles(app._sources.open, app._rooms, checked):
            checked = app._checks.kept(entry, statement, parsed.script.place, entry.widths)
    if checked.tapped is not None:
        app._taps.add(checked)
        app._runner.starter.recovered(_query_of(entry))
    if not connected:
        with Unit() as unit:
            resume_checked(app, entry, checked, unit)


class Revival:
    """A table whose source could not be read at the start: that is tried again."""

    reads = ()

    def __init__(self, app: App, entry: Saved):
        self._app = app
        self._entry = entry
        self.settled = True

    def news(self) -> list[News]:
        return [ticks]

    def advance(self) -> int:
        """Raises if it still cannot be read; else the table goes on as it would have."""
        # Who drops the table holds the lock and waits for this: it is tried again.
        if not self._app._lock.acquire(timeout=0.2):
            return 0
        try:
            _go_on(self._app, self._entry)
            self._app._living.gone(self._entry.name.lower(), self)
        finally:
            self._app._lock.release()
        return 0

    def close(self) -> None:
        return


def _stays(app: App, table: str, why: str) -> None:
    """A table whose source cannot be read as before keeps its rows, and says so."""
    log.warning('table "%s" stays as it was: %s', table, why)
    known = app._loads.get(table.lower()) or Load("unknown", "its source")
    app._loads[table.lower()] = replace(known, error=f"it stays as it was: {why}")


def resume_checked(app: App, entry: Saved, checked: Checked, unit: Unit) -> None:
    checked = app._with_types(checked)
    assert checked.resolved is not None and checked.target is not None
    name = _query_of(entry)
    target = app._target(checked, name)
    known = app._catalog.find(checked.target.name)
    if known is not None and known.schema != checked.target.schema:
        if known.kind != "table" or not app._drift.widen(known, checked):
            _stays(app, entry.name, "the columns of its source have changed")
            return
    if checked.block:
        app._start_pipeline(plan_block(checked, name), checked, unit, entry, new=False)
    elif checked.running:
        app._start_pipeline(plan_pipeline(checked, name, target), checked, unit, entry, new=False)
    elif checked.live:
        app._loader.wait(app._loader.running(checked.reads))
        app._views.add(plan_view(checked, name, target), checked.target.schema, restored=True)
    else:
        plan = plan_load(checked, name, target)
        if app._table_loads.is_from_outside(plan):
            app._loader.begin(plan, checked, lambda error: _failed(app, entry, error))
            return
        app._loader.wait(app._loader.running(checked.reads))
        app._table_loads.load(plan, checked)
