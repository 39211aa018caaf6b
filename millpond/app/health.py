"""How the tables of an app are: what fills each of them, and whether that goes on. No lock is taken to tell."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from millpond.errors import AccessRefused, ConnectionLost, Error
from millpond.loading.followers import OverSources
from millpond.query.stats import Health
from millpond.retry import Issues
from millpond.sql.errortables import error_table

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.engine.pipeline import Pipeline

PROGRAM = "program"


def health_of(app: App, table: str) -> tuple[str, Health]:
    """The kind of source that fills a table, and how the table is."""
    backend = app._store.table(table)
    if backend is None:
        return PROGRAM, Health("missing", f'table "{table}" was dropped')
    if backend.database is not None:
        try:
            backend.database.read()
        except (ConnectionLost, AccessRefused) as error:
            return PROGRAM, Health("disconnected", error.message)
        return PROGRAM, Health("healthy", f"its rows are in {backend.database.name}")
    name = table.lower()
    load = app._loads.get(name)
    if load is not None:
        return load.source, load.health()
    for view in app._views:
        if view.plan.target.name.lower() == name:
            if view.error is not None:
                return "table", Health("stale", view.error.message)
            if (reason := app._living.errors().get(view.plan.name)) is not None:
                return "table", Health("stale", reason)
            if (reason := _behind(app, view.tables)) is not None:
                return "table", Health("stale", reason)
            return "table", Health("healthy", f"it follows {_listed(view.tables)}")
    return _of_queries(app, name)


def _behind(app: App, tables: Iterable[str]) -> str | None:
    """Why copies that nobody sees, which others are made of, are not as what they copy."""
    errors = app._living.errors()
    for name in tables:
        if name in errors:
            return errors[name]
        refused = getattr(app._living.kept(name), "refused", None)
        if isinstance(refused, Error):
            return app._mask(f"{refused.message}: {refused.hint}")
    return None


def _of_queries(app: App, table: str) -> tuple[str, Health]:
    """A table that running statements fill; a failed one leaves it behind its stream."""
    filling = _filling(app, table)
    if not filling:
        return PROGRAM, Health("healthy", "its changes are commits of the app")
    streams = [p.plan.batch.stream.relation for p in filling]
    source = "stream" if streams[0].uri is None else streams[0].uri.partition(":")[0]
    for pipeline in filling:
        if pipeline.error is not None:
            return source, Health("stale", pipeline.error.message)
    if (reason := _behind(app, sorted({name for p in filling for name in p.plan.beside}))) is not None:
        return source, Health("stale", reason)
    for pipeline in filling:
        load = app._runner.backfills.load_of(pipeline)
        if load is not None:
            return source, load.health()
    idle = [p for p in filling if not p.active]
    if idle:
        return source, Health("stale", f"query {_listed(p.name for p in idle)} is {idle[0].state}")
    return source, Health("healthy", f"query {_listed(p.name for p in filling)} fills it")


def _filling(app: App, table: str) -> list[Pipeline]:
    return [p for p in app._runner if table.lower() in (name.lower() for name in p.plan.writes)]


def followed(app: App, table: str) -> dict[str, Any]:
    """How far a table is behind what it follows outside: rows by partition, as far as the source tells, rows that were
    gone before they were read, and what was tried again."""
    filling = [p for p in _filling(app, table) if p.plan.batch.stream.relation.uri is not None]
    if not filling:
        return _loaded(app, table)
    lag: dict[str, int] = {}
    for pipeline in filling:
        with suppress(Error):  # the health says what is wrong
            for part, rows in pipeline.source.lag(pipeline.offset).items():
                lag[part] = lag.get(part, 0) + rows
    issues = sum((p.issues for p in filling), Issues())
    for source in {id(p.source): p.source for p in filling}.values():
        issues += source.issues
    return {"lag": lag, "lost": sum(p.lost for p in filling), "issues": str(issues)}


def _loaded(app: App, table: str) -> dict[str, Any]:
    """What the load of a table has read, and how many of its records could not be read."""
    load, errors = app._loads.get(table.lower()), app._store.table(error_table(table))
    found: dict[str, Any] = (
        {"files": load.files, "read_bytes": load.bytes} if load is not None and load.of_files else {}
    )
    kept = app._living.kept(table.lower())
    if isinstance(kept, OverSources):
        with suppress(Error):  # the health says what is wrong
            sources = list(kept.sources.values())
            sizes = [size for s in sources if (size := s.log_bytes) is not None]
            found |= {"log_bytes": sum(sizes)} if sizes else {}
            if issues := str(sum((s.issues for s in sources), Issues())):
                found |= {"issues": issues}
    return found | ({"bad_records": len(errors)} if load is not None and errors is not None else {})


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))
