"""Fields that come up in a stream whose columns were discovered: they become columns of what reads all of them.

The source notices them, and each statement takes them in before the batch that has them: its text is checked again
with the columns that there are now. What cannot take them goes on with those that it knew, also after a restart. First
the columns of the source are kept, then those of the table: a restart in between takes the rest in then.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from millpond.app.script import check_kept
from millpond.errors import Error
from millpond.plan.load import plan_load
from millpond.plan.pipeline import plan_pipeline
from millpond.plan.plans import LoadPlan, PipelinePlan, target_of
from millpond.plan.view import plan_view
from millpond.sql.blocks import grouped
from millpond.sql.catalog import Relation
from millpond.sql.checked import Checked
from millpond.sql.parse import parse
from millpond.store.catalog import Saved, widths_of
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.views.materialized_view import LiveView

log = logging.getLogger("millpond")


def follow_columns(app: App, plan: PipelinePlan, columns: Schema) -> PipelinePlan | None:
    """The plan of a statement whose stream has these columns now; None if it stays as it was."""
    entry = _entry(app, plan)
    if entry is None or plan.aggregation is not None or plan.miss is not None:
        return None
    stream = plan.batch.stream.relation
    _follow_stream(app, stream, columns)
    try:
        checked = _checked(app, entry)
        assert checked.target is not None
        table = app._catalog.find(checked.target.name) if checked.target.kind == "table" else None
        if checked.target.kind == "stream" or (table is not None and not widen_table(app, table, checked)):
            return None
    except Error as error:
        log.warning("query %s goes on with the columns that it had: %s", plan.name, app._mask(error.message))
        return None
    entry.widths = widths_of(checked)
    app._journal.put_entry(entry.entry())
    return plan_pipeline(checked, plan.name, target_of(checked.target, checked.table_options))


def follow_loaded(app: App, plan: LoadPlan, sources: Iterable[Relation]) -> tuple[Checked, LoadPlan] | None:
    """A table over sources that have more columns now; None if it stays as it was."""
    entry, table = app._saved.get(plan.name.lower()), app._catalog.find(plan.target.name)
    if entry is None or table is None:
        return None
    for relation in sources:
        _follow_stream(app, relation, app._source(relation).schema())
    try:
        checked = _checked(app, entry)
        if not widen_table(app, table, checked):
            return None
    except Error as error:
        why = app._mask(error.message)
        log.warning('table "%s" goes on with the columns that it had: %s', table.name, why)
        return None
    return checked, plan_load(checked, plan.name, plan.target)


def widen_table(app: App, table: Relation, checked: Checked) -> bool:
    """Gives a table the columns that its query has now; False if it cannot take them, and stays as it is."""
    assert checked.target is not None
    wanted = checked.target.schema
    if wanted == table.schema:
        return True
    entry = app._saved.get(f"table:{table.name.lower()}")
    backend = app._backend(table.name)
    fits = all(wanted.find(c.name) == c for c in table.schema) and wanted.key == table.schema.key
    if entry is None or not fits or "widen" not in backend.abilities or _has_other_writers(app, table.name):
        log.warning('table "%s" stays without the new columns of its source', table.name)
        return False
    with app._views.between_rounds():
        with app._store.writing:
            with app._store.publishing:
                backend.widen(wanted)
            entry.schema, entry.widths = wanted, widths_of(checked)
            app._journal.put_entry(entry.entry())
        app._catalog.add(dataclasses.replace(table, schema=wanted))
        fresh = [c.name for c in wanted if c.name not in table.schema]
        log.info('table "%s" has new columns: %s', table.name, ", ".join(fresh))
        for view in app._views.users(table.name):
            try:
                _follow_view(app, view)
            except Error as error:
                why = app._mask(error.message)
                log.warning("table %s goes on with the columns that it had: %s", view.plan.target.name, why)
                app._views.replace(view, None, view.schema)
    return True


def _has_other_writers(app: App, table: str) -> bool:
    """Whether a running statement beside the one that fills a table changes it: its rows have the columns of now."""
    writers = {p.plan.query for p in app._runner if table.lower() in (name.lower() for name in p.plan.writes)}
    return len(writers) > 1


def _follow_view(app: App, view: LiveView) -> None:
    """A view over a table with new columns has them too, if its query reads all there are."""
    entry, plan, schema = app._saved.get(view.plan.name.lower()), None, view.schema
    if entry is not None:
        checked = _checked(app, entry)
        table = app._catalog.find(view.plan.target.name)
        if checked.target is not None and table is not None and widen_table(app, table, checked):
            plan = plan_view(checked, view.plan.name, target_of(checked.target))
            schema = checked.target.schema
    app._views.replace(view, plan, schema)


def _follow_stream(app: App, stream: Relation, columns: Schema) -> None:
    """Keeps the columns of the source, and of the stream that was declared over it."""
    app._rooms.find(app._source(stream).address, columns)
    app._columns.keep([stream])
    known = app._catalog.find(stream.name)
    entry = app._saved.get(f"stream:{stream.name.lower()}")
    if known is not None and entry is not None and known.schema != columns:
        entry.schema = columns
        app._journal.put_entry(entry.entry())
        app._catalog.add(dataclasses.replace(known, schema=columns))


def _entry(app: App, plan: PipelinePlan) -> Saved | None:
    """What is kept of the statement: the table that it fills, or the query."""
    return app._saved.get(plan.name.lower()) or app._saved.get(f"query:{plan.name.lower()}")


def _checked(app: App, entry: Saved) -> Checked:
    parsed = parse(entry.text)
    return app._with_types(check_kept(app, entry, grouped(parsed.require())[0], parsed.script.place, {}))
