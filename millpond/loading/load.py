"""Loading tables from sources outside, and letting them follow these."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond import faults
from millpond.changes import Offset
from millpond.connectors.source import Source, find_source
from millpond.errors import Closed, SourceChanged
from millpond.loading.bulk_load import Filling, Progress, Reached, Report
from millpond.loading.capture_tables import Copying
from millpond.loading.progress import Load
from millpond.plan.plans import LoadPlan, Target
from millpond.retry import Patience
from millpond.sql import statements as st
from millpond.sql.catalog import Relation
from millpond.sql.checked import Checked
from millpond.sql.errortables import error_relation
from millpond.sql.reads import names_read, uris_read
from millpond.steps import recording

if TYPE_CHECKING:
    from millpond.app.app import App

_AGAIN = Patience(10.0, 0.2, "fixed")
"""How a load is tried again if what it reads changes meanwhile."""
_REPORTING = threading.Lock()
"""Reports of several loads come one after another."""


def read_all(source: Source) -> pa.Table:
    """Everything that a source has now."""
    return read_range(source, None, source.latest(None))


def read_range(source: Source, start: Offset | None, end: Offset) -> pa.Table:
    schema = source.schema().arrow()
    batches = [b.select(schema.names) for s in source.splits(start, end) for b in source.read(s)]
    return pa.Table.from_batches(batches, schema)


def is_from_outside(app: App, plan: LoadPlan) -> bool:
    """Whether a load needs nothing of this process, and can run beside what it does."""
    inputs = [i.relation for i in plan.query.inputs]
    return all(r.kind == "source" and not app._source(r).local for r in inputs)


def _filling(app: App, plan: LoadPlan, checked: Checked, report: Report) -> Filling:
    captured = any(i.relation.captured for i in plan.query.inputs if i.relation.kind == "source")
    if captured and checked.table_options.get("refresh") != "once":
        return Copying(app, plan, checked, report, kept=app._keeps(plan.target.name) and app._journal.durable)
    return Filling(app, plan, checked, report)


def load(app: App, plan: LoadPlan, checked: Checked) -> int:
    """Fills a table from its sources, and lets it follow them; what was loaded before a restart is not loaded again."""
    name = plan.target.name.lower()
    loads, store, mask = app._loads, app._store, app._mask
    sources = [i.relation.name for i in plan.query.inputs if i.relation.kind == "source"]
    what = mask(", ".join(sources)) or "tables"
    kind = sources[0].partition(":")[0] if sources else "table"
    loads[name] = Load(kind, what, began=time.time())

    def report(progress: Progress) -> None:
        if app._closed:
            raise Closed("the app is closed")
        if loads[name].loaded_at is not None:
            return
        share = progress.bytes / progress.total if progress.total else None
        loads[name] = replace(
            loads[name],
            rows=progress.rows,
            of=progress.of,
            share=share,
            bytes=progress.bytes,
            files=progress.files,
            of_files=progress.of_files,
        )
        with _REPORTING:
            app._on_progress(progress)

    app._source_values.update(checked.source_options)
    _declare(app, plan.name, plan.target, errors=plan.errors is not None)
    filling = _filling(app, plan, checked, report)
    new, once = store.position(plan.name) is None, checked.table_options.get("refresh") == "once"
    loaded = once and _is_loaded(app, plan.name, name)
    try:
        with recording(loads[name].steps):
            rows = 0 if loaded else _AGAIN.wait_for(filling.advance, on=(SourceChanged,))
    except Exception as error:
        filling.abandon(new=new)
        loads[name] = replace(loads[name], error=mask(str(getattr(error, "message", error))))
        raise
    faults.reach("table loaded")
    changed = app._backend(name).stats().get("changed_at")
    follows = not once and filling.follows
    stale = filling.refused
    loads[name] = replace(
        loads[name],
        ended=time.time(),
        loaded_at=changed or time.time(),
        follows=follows,
        error=mask(f"{stale.message}: {stale.hint}") if stale is not None else None,
    )
    if follows:
        app._columns.keep(filling.reads)
        app._living.add(name, filling)
    faults.reach("table follows")
    return rows


def _declare(app: App, name: str, target: Target, *, errors: bool) -> None:
    """Makes known what fills a table, and the table of its error records."""
    store = app._store
    store.fills(name, target.name)
    if errors:
        relation = error_relation(name)
        store.create(relation, *store.companion_of(target.name))
        app._catalog.add(relation)


def _is_loaded(app: App, name: str, table: str) -> bool:
    """Whether the rows of a table were loaded to the end, and are there after a restart."""
    return app._keeps(table) and Reached.of(app._store.position(name)).at is not None


def keep_loaded(app: App, name: str, target: Relation, statement: st.CreateTable | st.CreateView) -> bool:
    """Takes a table that is loaded once as it is, if it has been loaded to the end: its sources are not asked. One that
    reads others by name is checked as any other."""
    query, store = statement.query, app._store
    store.fills(name, target.name)
    if not _is_loaded(app, name, target.name) or query is None or names_read(query):
        return False
    uris = uris_read(query)
    fails = any(s.name.lower() == "on.error" and s.value.lower() == "fail" for s in statement.settings)
    _declare(
        app, name, Target("table", target.name), errors=not fails and any(find_source(u).sifts for u in uris)
    )
    changed = store.backend(target.name).stats().get("changed_at")
    load = Load(uris[0].partition(":")[0], app._mask(", ".join(uris)), loaded_at=changed or time.time())
    app._loads[target.name.lower()] = load
    return True
