"""Adds new fields of a stream with discovered columns to the tables that read all of its columns.

The source notices them, and each statement adds them before the batch that contains them: its text is checked again
with the current columns. A statement that cannot add them continues with those that it knew, also after a restart. The
columns of the source are stored first, then those of the table: a restart in between adds the rest.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable

from millpond.alterations import WidenedColumns
from millpond.errors import Error
from millpond.loading.discovered_columns import KeptColumns
from millpond.loading.followers import Mask
from millpond.loading.open_sources import OpenSource
from millpond.plan.connectors import Connectors
from millpond.plan.load import plan_load
from millpond.plan.pipeline import plan_pipeline
from millpond.plan.plans import LoadPlan, PipelinePlan, RowsPlan, target_of
from millpond.plan.view import plan_view
from millpond.sql.blocks import grouped
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checked import CheckedInsert, CheckedTableAs, CheckedWrite
from millpond.sql.parse import parse
from millpond.statements.handlers import WithTypes
from millpond.statements.saved_statements import SavedStatements
from millpond.statements.script import Checks
from millpond.store.catalog import SavedQuery, SavedRelation, widths_of
from millpond.store.store import Store
from millpond.types import Schema
from millpond.views.live_view import LiveView
from millpond.views.materialized_view import Views

log = logging.getLogger("millpond")


class SchemaDrift:
    """Adds new columns of sources to statements that read all columns. ``plans`` are those of running statements."""

    def __init__(
        self,
        catalog: Catalog,
        saved: SavedStatements,
        store: Store,
        connectors: Connectors,
        open_source: OpenSource,
        columns: KeptColumns,
        views: Views,
        plans: Callable[[], Iterable[PipelinePlan]],
        checks: Checks,
        with_types: WithTypes,
        mask: Mask,
        follow_handle: Callable[[str, str], object],
    ):
        self._catalog = catalog
        self._saved = saved
        self._store = store
        self._journal = store.journal
        self._connectors = connectors
        self._open_source = open_source
        self._columns = columns
        self._views = views
        self._plans = plans
        self._checks = checks
        self._with_types = with_types
        self._mask = mask
        self._follow_handle = follow_handle

    def follow_stream(self, plan: RowsPlan, columns: Schema) -> RowsPlan | None:
        """Returns the plan of a statement whose stream now has these columns; None if it stays as it was."""
        entry = self._entry(plan)
        if entry is None or plan.miss is not None:
            return None
        self._keep_columns(plan.batch.stream.relation, columns)
        try:
            checked = self._checked(entry)
            target = checked.changes
            table = self._catalog.find(target.name) if target.kind == "table" else None
            if target.kind == "stream" or (table is not None and not self.widen(table, checked)):
                return None
        except Error as error:
            why = self._mask(error.message)
            log.warning("query %s continues with the columns that it had: %s", plan.name, why)
            return None
        entry.widths = widths_of(checked)
        self._journal.put_entry(entry.entry())
        options = checked.sink_options if isinstance(checked, CheckedInsert) else None
        made = plan_pipeline(checked, plan.name, target_of(target, options))
        assert isinstance(made, RowsPlan)
        return made

    def follow_sources(self, plan: LoadPlan, sources: Iterable[Relation]) -> LoadPlan | None:
        """Returns the plan of a table over sources that now have more columns; None if it stays as it was."""
        entry, table = self._saved.relation(plan.name), self._catalog.find(plan.target.name)
        if entry is None or table is None:
            return None
        for relation in sources:
            self._keep_columns(relation, self._open_source(relation).schema())
        try:
            checked = self._checked(entry)
            assert isinstance(checked, CheckedTableAs)
            if not self.widen(table, checked):
                return None
        except Error as error:
            why = self._mask(error.message)
            log.warning('table "%s" continues with the columns that it had: %s', table.name, why)
            return None
        return plan_load(checked, plan.name, plan.target)

    def widen(self, table: Relation, checked: CheckedWrite) -> bool:
        """Adds the new columns of its query to a table; returns False if it cannot, and leaves the table as it is."""
        wanted = checked.changes.schema
        if wanted == table.schema:
            return True
        entry = self._saved.relation(f"table:{table.name}")
        if entry is None or not self.can_widen(table, checked):
            log.warning('table "%s" stays without the new columns of its source', table.name)
            return False
        backend = self._store.backend(table.name)
        with self._views.between_rounds():
            with self._store.writing:
                before = entry.schema, entry.widths
                entry.schema, entry.widths = wanted, widths_of(checked)
                try:
                    self._journal.put_entry(entry.entry())
                except BaseException:
                    entry.schema, entry.widths = before
                    raise
                self._store.replace(table.name, backend.alter(WidenedColumns(wanted)))
                # A waiting writer must find out, when it is its turn, that the table has other columns.
                self._catalog.add(dataclasses.replace(table, schema=wanted))
                self._follow_handle(
                    table.name, table.name
                )  # the object that programs use gets the columns, too
                # A view that changes with the table is replaced before the next commit.
                for view in self._views.users(table.name):
                    self.follow_table(view)
            fresh = [c.name for c in wanted if c.name not in table.schema]
            log.info('table "%s" has new columns: %s', table.name, ", ".join(fresh))
        return True

    def can_widen(self, table: Relation, checked: CheckedWrite) -> bool:
        """Returns whether a table can get the columns that its query has."""
        wanted = checked.changes.schema
        fits = all(wanted.find(c.name) == c for c in table.schema) and wanted.key == table.schema.key
        able = "widen" in self._store.backend(table.name).abilities
        return wanted == table.schema or (fits and able and not self._has_other_writers(table.name))

    def follow_table(self, view: LiveView) -> None:
        """Lets a view find the columns that a table over which it stands has now. Called between rounds."""
        try:
            self._follow_view(view)
        except Error as error:
            why = self._mask(error.message)
            log.warning("table %s continues with the columns that it had: %s", view.plan.target.name, why)
            self._views.replace(view, None, view.schema)

    def _has_other_writers(self, table: str) -> bool:
        """Returns whether several running statements change the table: their rows have the current columns."""
        name = table.lower()
        writers = {plan.query for plan in self._plans() if name in (n.lower() for n in plan.writes)}
        return len(writers) > 1

    def _follow_view(self, view: LiveView) -> None:
        """Adds new columns of a table to a view over it, if the view's query reads all columns."""
        entry, plan, schema = self._saved.relation(view.plan.name), None, view.schema
        if entry is not None:
            checked = self._checked(entry)
            table = self._catalog.find(view.plan.target.name)
            if table is not None and self.widen(table, checked):
                plan = plan_view(checked, view.plan.name, target_of(checked.changes))
                schema = checked.changes.schema
        self._views.replace(view, plan, schema)

    def _keep_columns(self, stream: Relation, columns: Schema) -> None:
        """Stores the columns of the source, and of the stream that was declared over it."""
        self._connectors.find(self._open_source(stream).address, columns)
        self._columns.keep([stream])
        known = self._catalog.find(stream.name)
        entry = self._saved.relation(f"stream:{stream.name}")
        if known is not None and entry is not None and known.schema != columns:
            entry.schema = columns
            self._journal.put_entry(entry.entry())
            self._catalog.add(dataclasses.replace(known, schema=columns))

    def _entry(self, plan: PipelinePlan) -> SavedRelation | SavedQuery | None:
        """Returns the saved entry of the statement: the table that it fills, or the query."""
        return self._saved.relation(plan.name) or self._saved.query(plan.name)

    def _checked(self, entry: SavedRelation | SavedQuery) -> CheckedWrite:
        parsed = parse(entry.text)
        statement = grouped(parsed.require())[0]
        checked = self._with_types(self._checks.kept(entry, statement, parsed.script.place, {}))
        assert isinstance(checked, CheckedWrite)
        return checked
