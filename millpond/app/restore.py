"""Restores a running app from a state directory."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace

from millpond.alter.pending_changes import open_pending
from millpond.alter.schema_drift import SchemaDrift
from millpond.changelog import CHANGES
from millpond.connectors.source import ticks
from millpond.errors import Error, SourceError
from millpond.journal.revision import Revision
from millpond.loading.capture_streams import CapturedStreams
from millpond.loading.discovered_columns import COLUMNS, KeptColumns, take_doubles
from millpond.loading.followers import Followers, News
from millpond.loading.load import TableLoads
from millpond.loading.loader import Loader
from millpond.loading.open_sources import Sources
from millpond.loading.progress import Load
from millpond.loading.stored_changes import StoredLogs
from millpond.plan.connectors import Connectors
from millpond.plan.plans import PipelinePlan, ViewPlan
from millpond.plan.statement_plan import plan_statement
from millpond.replace.leftovers import BUILDING, remove_unfinished
from millpond.sql import statements as st
from millpond.sql.blocks import grouped
from millpond.sql.catalog import Catalog
from millpond.sql.checked import CheckedCapture, CheckedStream, CheckedWrite
from millpond.sql.parse import parse
from millpond.statements.declarations import Declarations
from millpond.statements.handlers import WithTypes
from millpond.statements.indexes import KIND as INDEX
from millpond.statements.indexes import Indexes
from millpond.statements.launch import Launcher
from millpond.statements.saved_statements import VALUES, SavedStatements
from millpond.statements.script import Checks
from millpond.statements.secrets import Secrets
from millpond.store.catalog import Saved, SavedIndex, SavedQuery, SavedRelation, options_of, relation_of
from millpond.store.changelogs import CHANGELOG
from millpond.store.dropped_tables import LEAVING, DroppedTables
from millpond.store.query_states import QUERY_STATE, QueryStates
from millpond.store.store import Store
from millpond.store.undo import Undo
from millpond.streaming.runner import Runner
from millpond.streaming.sink_statement import IDENTITY
from millpond.views.equal_views import EQUAL_VIEWS
from millpond.views.materialized_view import Views

log = logging.getLogger("millpond")


@dataclass(frozen=True, eq=False, repr=False)
class Restorer:
    """Restores what a state directory contains, and lets statements continue."""

    lock: threading.RLock
    store: Store
    catalog: Catalog
    saved: SavedStatements
    declarations: Declarations
    indexes: Indexes
    query_states: QueryStates
    columns: KeptColumns
    dropped_tables: DroppedTables
    connectors: Connectors
    sources: Sources
    checks: Checks
    drift: SchemaDrift
    launcher: Launcher
    runner: Runner
    views: Views
    followers: Followers
    loads: dict[str, Load]
    loader: Loader
    table_loads: TableLoads
    captured_streams: CapturedStreams
    stored_logs: StoredLogs
    secrets: Secrets
    with_types: WithTypes
    read_only: bool

    def open(self, *, hiding: bool = False) -> None:
        """Opens what the state directory contains, so that tables can be read; nothing runs yet. With ``hiding``, what
        an upgrade drops is left closed.
        """
        # A change that a database has to make may change other statements, too: it comes first.
        begun = [
            raw
            for raw in self.store.journal.entries()
            if raw.data.get("pending") is not None and not (hiding and raw.data.get("dropping"))
        ]
        for raw in begun:
            self._open_saved(Saved.of(raw))
        first = {(raw.kind, raw.name) for raw in begun}
        left = [raw for raw in self.store.journal.entries() if (raw.kind, raw.name) not in first]
        # A table that was renamed may come after its indexes.
        for raw in sorted(left, key=lambda raw: raw.kind == INDEX):
            if raw.kind == QUERY_STATE:
                self.query_states.restore(raw.name, raw.data["state"])
                continue
            if raw.kind == COLUMNS:
                self.columns.restore(raw)
                continue
            if raw.kind == LEAVING:
                self.dropped_tables.restore(raw)
                continue
            if raw.kind == CHANGELOG:
                self.store.changelogs.restore(raw)
                continue
            if raw.kind == EQUAL_VIEWS:
                self.views.marks.restore(raw)
                continue
            if raw.kind == VALUES:
                self.saved.fingerprint = raw.data["seal"]
                continue
            if raw.kind in (IDENTITY, BUILDING):
                continue
            entry = Saved.of(raw)
            if hiding and entry.dropping:
                self.saved.hidden[entry.id] = entry
            else:
                self._open_saved(entry)

    def reveal(self) -> None:
        """Opens what is hidden and continues what fills it, so that all of it can be dropped."""
        hidden = list(self.saved.hidden.values())
        self.saved.hidden.clear()
        for entry in hidden:
            # A statement of the file may have dropped the table of an index.
            if isinstance(entry, SavedIndex) and self.indexes.table_of(entry) is None:
                self.store.journal.drop_entry(entry.kind, entry.name)
            else:
                self._open_saved(entry)
        with self.connectors.hasty():
            for entry in hidden:
                if isinstance(entry, SavedRelation | SavedQuery):
                    self.resume(entry)

    def _open_saved(self, entry: Saved) -> None:
        self.saved.restore(entry)
        if isinstance(entry, SavedIndex):
            self.indexes.restore(parse(entry.text).require()[0])
        elif isinstance(entry, SavedRelation):
            self._open(entry)

    def restore(self) -> None:
        """Continues what fills the relations that are open."""
        if self.read_only:
            return
        self.views.marks.begin()
        remove_unfinished(self.store.journal)
        self.dropped_tables.finish()
        self._end_unread()
        with self.connectors.hasty():
            for known in list(self.saved.entries.values()):
                if known.kind == "table":
                    self.stored_logs.resume(known.name)
                if isinstance(known, SavedRelation | SavedQuery):
                    self.resume(known)

    def _end_unread(self) -> None:
        """Removes changelogs whose statements a kill left neither declared nor dropped."""
        entries = (*self.saved.entries.values(), *self.saved.hidden.values())
        names = {e.id if isinstance(e, SavedRelation) else e.name.lower() for e in entries}
        for stream in self.store.changelogs:
            if stream.removesuffix(CHANGES) not in names:
                self.store.changelogs.end(stream)

    def _open(self, entry: SavedRelation) -> None:
        parsed = parse(entry.text)

        def opened(as_it_was: SavedRelation) -> Store:
            relation, options = relation_of(as_it_was, parsed), options_of(as_it_was, parsed)
            adapt = as_it_was.altered.adapt if as_it_was.altered.changes else None
            self.declarations.open(relation, options, adapt)
            return self.store

        if entry.pending is None:
            opened(entry)
            return
        made, done = open_pending(entry, opened, read_only=self.read_only)
        self.saved.restore(made)
        if not self.read_only:
            changed = made.schema != entry.schema and entry.pending_with is not None
            with_it = entry.pending_with if changed else None
            self.store.journal.revise((with_it or Revision()).and_then(Revision([made.entry()], done=done)))

    def resume(self, entry: SavedRelation | SavedQuery) -> None:
        """Continues a restored statement: an interrupted load, or a pipeline. One that cannot stays as it was."""
        try:
            self.go_on(entry)
        except Error as error:
            if entry.kind == "table":
                self._failed(entry, error)
            else:
                self._stall(entry, error)

    def _failed(self, entry: SavedRelation | SavedQuery, error: Error) -> None:
        """Records that what fills a table could not continue: the table stays, and a failed source is retried."""
        self._stays(entry.name, self.secrets.mask(error.message))
        if isinstance(error, SourceError):
            self.followers.add(entry.name.lower(), Revival(self, entry))

    def _stall(self, entry: SavedRelation | SavedQuery, error: Error) -> None:
        """Records that a query, or what fills a stream, could not continue: it is retried if the error may pass, or on
        request.
        """

        def again() -> None:
            # A thread that drops the query holds the lock and may wait for this: it is retried.
            if not self.lock.acquire(timeout=0.2):
                return
            try:
                self.resume(entry)
            finally:
                self.lock.release()

        self.runner.starter.stall(_query_of(entry), entry.text, error, again)

    def go_on(self, entry: SavedRelation | SavedQuery) -> None:
        """Continues a statement, or raises why it cannot."""
        parsed = parse(entry.text)
        self.secrets.remember(parsed.script)
        statement = grouped(parsed.require())[0]
        query = getattr(statement, "query", None)
        connected = isinstance(statement, st.CreateStream) and query is None
        if entry.kind == "view" or (query is None and not connected and not isinstance(entry, SavedQuery)):
            return
        options = entry.options if isinstance(entry, SavedRelation) else {}
        if isinstance(statement, st.CreateTable | st.CreateView) and options.get("refresh") == "once":
            target = self.catalog.find(entry.name)
            if target is not None and self.table_loads.keep_loaded(_query_of(entry), target, statement):
                return
        # It continues with the columns that it knew; new ones are added as usual.
        checked = self.checks.kept(entry, statement, parsed.script.place, entry.widths)
        if isinstance(checked, CheckedStream | CheckedWrite):
            self.sources.values.update(checked.source_options)
        if isinstance(checked, CheckedCapture):
            self.captured_streams.add(checked)
            self.runner.starter.recovered(_query_of(entry))
        if not isinstance(checked, CheckedWrite):
            return
        target = checked.changes
        known = self.catalog.find(target.name)
        if known is not None and known.schema != target.schema:
            if take_doubles(self.sources.open, self.connectors, checked.resolved):
                checked = self.checks.kept(entry, statement, parsed.script.place, entry.widths)
                assert isinstance(checked, CheckedWrite)
        with Undo() as undo:
            self._resume_checked(entry, checked, undo)

    def _stays(self, table: str, why: str) -> None:
        """Leaves a table with its rows if its source cannot be read as before, and reports that."""
        log.warning('table "%s" stays as it was: %s', table, why)
        known = self.loads.get(table.lower()) or Load("unknown", "its source")
        self.loads[table.lower()] = replace(known, error=f"it stays as it was: {why}")

    def _resume_checked(self, entry: SavedRelation | SavedQuery, checked: CheckedWrite, undo: Undo) -> None:
        checked = self.with_types(checked)
        name = _query_of(entry)
        target = self.launcher.target(checked, name)
        known = self.catalog.find(checked.changes.name)
        if known is not None and known.schema != checked.changes.schema:
            if known.kind != "table" or not self.drift.widen(known, checked):
                self._stays(entry.name, "the columns of its source have changed")
                return
        plan = plan_statement(checked, name, target)
        if isinstance(plan, PipelinePlan):
            self.launcher.start(plan, checked, undo, entry, new=False)
        elif isinstance(plan, ViewPlan):
            self.loader.wait(self.loader.running(checked.reads))
            self.views.add(plan, checked.changes.schema, restored=True)
        elif plan is not None:
            if self.table_loads.is_from_outside(plan):
                self.loader.begin(plan, lambda error: self._failed(entry, error))
                return
            self.loader.wait(self.loader.running(checked.reads))
            self.table_loads.load(plan)


class Revival:
    """Retries a table whose source could not be read at the start."""

    reads = ()

    def __init__(self, restorer: Restorer, entry: SavedRelation | SavedQuery):
        self._restorer = restorer
        self._entry = entry
        self.settled = True

    def news(self) -> list[News]:
        return [ticks]

    def advance(self) -> int:
        """Raises if it still cannot be read; else the table continues as it would have."""
        # A thread that drops the table holds the lock and waits for this: it is retried.
        restorer = self._restorer
        if not restorer.lock.acquire(timeout=0.2):
            return 0
        try:
            restorer.go_on(self._entry)
            restorer.followers.gone(self._entry.name.lower(), self)
        finally:
            restorer.lock.release()
        return 0

    def close(self) -> None:
        return


def _query_of(entry: SavedRelation | SavedQuery) -> str:
    return entry.name if entry.kind == "query" else f"{entry.kind}:{entry.name}"
