"""Reports the health of the tables of an app: what fills each table, and whether it still does. Takes no lock."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from millpond.connectors import abilities
from millpond.errors import AccessRefused, ConnectionLost, Error
from millpond.loading.followers import Followers, Mask, OverSources
from millpond.loading.progress import Load
from millpond.query.stats import Health
from millpond.retry import Issues
from millpond.sql.catalog import Relation
from millpond.sql.errortables import error_table
from millpond.store.store import Store
from millpond.streaming.runner import Runner
from millpond.tables.flushed_table import FlushedTable
from millpond.views.materialized_view import Views

if TYPE_CHECKING:
    from millpond.engine.pipeline import Pipeline

PROGRAM = "program"


class TableHealth:
    """Reports the state of tables, and what they follow."""

    def __init__(
        self,
        store: Store,
        loads: dict[str, Load],
        views: Views,
        followers: Followers,
        runner: Runner,
        mask: Mask,
    ):
        self._store = store
        self._loads = loads
        self._views = views
        self._followers = followers
        self._runner = runner
        self._mask = mask

    def of(self, table: str) -> tuple[str, Health]:
        """Returns the kind of source that fills a table, and the state of the table."""
        backend = self._store.table(table)
        if backend is None:
            return PROGRAM, Health("missing", f'table "{table}" was dropped')
        if backend.database is not None:
            try:
                backend.database.read()
            except (ConnectionLost, AccessRefused) as error:
                return PROGRAM, Health("disconnected", error.message)
            return PROGRAM, Health("healthy", f"its rows are in {backend.database.name}")
        if isinstance(backend, FlushedTable) and backend.flush_error is not None:
            return PROGRAM, Health("stale", f"others do not see its last changes: {backend.flush_error}")
        name = table.lower()
        load = self._loads.get(name)
        if load is not None:
            return load.source, load.health()
        for view in self._views:
            if view.plan.target.name.lower() == name:
                if view.error is not None:
                    return "table", Health("stale", view.error.message)
                if (reason := self._followers.errors().get(view.plan.name)) is not None:
                    return "table", Health("stale", reason)
                if (reason := self._behind(view.tables)) is not None:
                    return "table", Health("stale", reason)
                return "table", Health("healthy", f"it follows {_listed(view.tables)}")
        return self._of_queries(name)

    def _behind(self, tables: Iterable[str]) -> str | None:
        """Returns why the hidden copies that a table is made from differ from their sources."""
        errors = self._followers.errors()
        for name in tables:
            if name in errors:
                return errors[name]
            refused = getattr(self._followers.kept(name), "refused", None)
            if isinstance(refused, Error):
                return self._mask(f"{refused.message}: {refused.hint}")
        return None

    def _of_queries(self, table: str) -> tuple[str, Health]:
        """Returns the health of a table that running statements fill; after a failed one it is behind its stream."""
        pipelines = self._writers(table)
        if not pipelines:
            return PROGRAM, Health("healthy", "its changes are commits of the app")
        streams = [p.plan.batch.stream.relation for p in pipelines]
        source = "stream" if streams[0].uri is None else streams[0].uri.partition(":")[0]
        for pipeline in pipelines:
            if pipeline.error is not None:
                return source, Health("stale", pipeline.error.message)
        if (
            reason := self._behind(sorted({name for p in pipelines for name in p.plan.joined_tables}))
        ) is not None:
            return source, Health("stale", reason)
        for pipeline in pipelines:
            load = self._runner.backfills.load_of(pipeline)
            if load is not None:
                return source, load.health()
        idle = [p for p in pipelines if not p.active]
        if idle:
            return source, Health("stale", f"query {_listed(p.name for p in idle)} is {idle[0].state}")
        return source, Health("healthy", f"query {_listed(p.name for p in pipelines)} fills it")

    def _writers(self, table: str) -> list[Pipeline]:
        return [p for p in self._runner if table.lower() in (name.lower() for name in p.plan.writes)]

    def followed(self, table: str) -> dict[str, Any]:
        """Returns how far a table is behind its outside source: rows by partition, as far as the source reports them,
        rows that were lost before they were read, and retries.
        """
        pipelines = [p for p in self._writers(table) if _may_lose(p.plan.batch.stream.relation)]
        view = next((v for v in self._views if v.plan.target.name.lower() == table.lower()), None)
        if view is not None:
            return {"state_entries": view.by_changes.size, "state_bytes": view.by_changes.bytes}
        if not pipelines:
            return self._loaded(table)
        lag: dict[str, int] = {}
        for pipeline in pipelines:
            with suppress(Error):  # the health reports the error
                for part, rows in abilities.lag(pipeline.source, pipeline.offset).items():
                    lag[part] = lag.get(part, 0) + rows
        issues = sum((p.issues for p in pipelines), Issues())
        for source in {id(p.source): p.source for p in pipelines}.values():
            issues += source.issues
        return {"lag": lag, "lost": sum(p.lost for p in pipelines), "issues": str(issues)}

    def _loaded(self, table: str) -> dict[str, Any]:
        """Returns what the load of a table has read, and how many of its records could not be read."""
        load, errors = self._loads.get(table.lower()), self._store.table(error_table(table))
        found: dict[str, Any] = (
            {"files": load.files, "read_bytes": load.bytes} if load is not None and load.of_files else {}
        )
        kept = self._followers.kept(table.lower())
        if isinstance(kept, OverSources):
            with suppress(Error):  # the health reports the error
                sources = list(kept.sources.values())
                sizes = [size for s in sources if (size := abilities.log_bytes(s)) is not None]
                found |= {"log_bytes": sum(sizes)} if sizes else {}
                if issues := str(sum((s.issues for s in sources), Issues())):
                    found |= {"issues": issues}
        return found | ({"bad_records": len(errors)} if load is not None and errors is not None else {})


def _may_lose(stream: Relation) -> bool:
    """Returns whether a stream may have lost rows before they were read."""
    return stream.uri is not None or stream.retention is not None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))
