"""Loads the table of a statement from its sources, and starts its follower."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from millpond import faults
from millpond.connectors import abilities
from millpond.connectors.source import find_source
from millpond.errors import Closed, SourceChanged
from millpond.loading.bulk_load import Reached
from millpond.loading.discovered_columns import KeptColumns
from millpond.loading.followers import Followers, Mask
from millpond.loading.loaded_tables import LoadedTables
from millpond.loading.open_sources import Sources
from millpond.loading.progress import Load, Progress, Report
from millpond.plan.plans import LoadPlan, Target
from millpond.retry import Patience
from millpond.sql import statements as st
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.errortables import error_relation
from millpond.sql.reads import names_read, uris_read
from millpond.steps import recording
from millpond.store.store import Store

_AGAIN = Patience(10.0, 0.2, "fixed")
"""How a load is retried if what it reads changes meanwhile."""
_REPORTING = threading.Lock()
"""Serializes the reports of several loads."""


class TableLoads:
    """Loads tables, and records in ``loads`` how far each is."""

    def __init__(
        self,
        loads: dict[str, Load],
        loaded_tables: LoadedTables,
        store: Store,
        catalog: Catalog,
        sources: Sources,
        columns: KeptColumns,
        followers: Followers,
        mask: Mask,
        on_progress: Report,
        is_closed: Callable[[], bool],
    ):
        self._loads = loads
        self._tables = loaded_tables
        self._store = store
        self._catalog = catalog
        self._sources = sources
        self._columns = columns
        self._followers = followers
        self._mask = mask
        self._on_progress = on_progress
        self._is_closed = is_closed

    def is_from_outside(self, plan: LoadPlan) -> bool:
        """Returns whether a load needs nothing of this process, and can run concurrently."""
        inputs = [i.relation for i in plan.query.inputs]
        return all(r.kind == "source" and not self._sources.open(r).local for r in inputs)

    def load(self, plan: LoadPlan) -> int:
        """Loads a table from its sources, and starts its follower; what was loaded before a restart is not loaded
        again.
        """
        name = plan.target.name.lower()
        loads, store, mask = self._loads, self._store, self._mask
        sources = [i.relation.name for i in plan.query.inputs if i.relation.kind == "source"]
        what = mask(", ".join(sources)) or "tables"
        kind = sources[0].partition(":")[0] if sources else "table"
        loads[name] = Load(kind, what, began=time.time())
        self._sources.values.update(plan.source_options)
        self._declare(plan.name, plan.target, errors=plan.errors is not None)
        table = self._tables.make(plan, partial(self._report, name))
        new = store.position(plan.name) is None
        loaded = plan.once and self._is_loaded(plan.name, name)
        try:
            with recording(loads[name].steps):
                rows = 0 if loaded else _AGAIN.wait_for(table.advance, on=(SourceChanged,))
        except Exception as error:
            table.abandon(new=new)
            loads[name] = replace(loads[name], error=mask(str(getattr(error, "message", error))))
            raise
        faults.reach("table loaded")
        changed = store.backend(name).stats().get("changed_at")
        follows = not plan.once and table.follows
        stale = table.refused
        loads[name] = replace(
            loads[name],
            ended=time.time(),
            loaded_at=changed or time.time(),
            follows=follows,
            error=mask(f"{stale.message}: {stale.hint}") if stale is not None else None,
        )
        if follows:
            self._columns.keep(table.reads)
            self._followers.add(name, table)
        faults.reach("table follows")
        return rows

    def _report(self, name: str, progress: Progress) -> None:
        if self._is_closed():
            raise Closed("the app is closed")
        loads = self._loads
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
            self._on_progress(progress)

    def _declare(self, name: str, target: Target, *, errors: bool) -> None:
        """Declares what fills a table, and the table of its error records."""
        store = self._store
        store.fills(name, target.name)
        if errors:
            relation = error_relation(name)
            store.create(relation, *store.companion_of(target.name))
            self._catalog.add(relation)

    def _is_loaded(self, name: str, table: str) -> bool:
        """Returns whether the rows of a table were loaded completely, and exist after a restart."""
        return self._store.keeps(table) and Reached.of(self._store.position(name)).at is not None

    def keep_loaded(self, name: str, target: Relation, statement: st.CreateTable | st.CreateView) -> bool:
        """Keeps a table that is loaded once unchanged, if it has been loaded completely: its sources are not read. One
        that reads others by name is checked like any other.
        """
        query, store = statement.query, self._store
        store.fills(name, target.name)
        if not self._is_loaded(name, target.name) or query is None or names_read(query):
            return False
        uris = uris_read(query)
        fails = any(s.name.lower() == "on.error" and s.value.lower() == "fail" for s in statement.settings)
        errors = not fails and any(issubclass(find_source(u), abilities.Rejects) for u in uris)
        self._declare(name, Target("table", target.name), errors=errors)
        changed = store.backend(target.name).stats().get("changed_at")
        load = Load(uris[0].partition(":")[0], self._mask(", ".join(uris)), loaded_at=changed or time.time())
        self._loads[target.name.lower()] = load
        return True
