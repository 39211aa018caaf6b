"""Whether an app is ready, and if not, what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from millpond.app.app import App


@dataclass(frozen=True, slots=True)
class TableLoad:
    """A table that is being loaded: rows so far, of how many and how much of it in percent where that is known, and
    rows in a second."""

    table: str
    rows: int
    of: int | None
    percent: int | None
    rate: float


@dataclass(frozen=True, slots=True)
class Readiness:
    """How far an app is. It is true when the app is ready: every table is loaded, every query runs.

    ``loading`` are the tables that are being loaded, ``waiting`` the queries that have not started, with the tables
    that they wait for. ``problems`` say why the app is degraded: it answers, but something does not go on.
    """

    state: Literal["loading", "ready", "degraded", "closed"]
    loading: tuple[TableLoad, ...] = ()
    waiting: dict[str, tuple[str, ...]] | None = None
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.state == "ready"


def readiness(app: App) -> Readiness:
    if app._closed:
        return Readiness("closed")
    waiting = app._runner.starter.needed()
    loads = {
        name: load for name in sorted(app._loader.running()) if (load := app._loads.get(name)) is not None
    }
    for pipeline in app._runner:
        load = app._runner.backfills.load_of(pipeline)
        if load is not None:
            loads[pipeline.plan.target.name.lower()] = load
    loading = tuple(TableLoad(name, x.rows, x.of, x.percent, x.rate) for name, x in loads.items())
    problems = [] if app._store.stopped is None else [app._store.stopped.message]
    problems += [f'table "{n}": {x.error}' for n, x in app._loads.items() if x.error is not None]
    problems += [v.error.message for v in app._views if v.error is not None]
    for name, error in app._living.errors().items():
        if name not in app._loads:
            problems.append(f'table "{name.removeprefix("table:")}": {error}')
    for pipeline in app._runner:
        if pipeline.state != "running":
            reason = pipeline.error.message if pipeline.error is not None else f'query "{pipeline.name}"'
            problems.append(f"{reason} ({pipeline.state})")
    for query, stalled in app._runner.starter.stalled.items():
        problems.append(f"{stalled.error.message} (query {query} is {app._queries.state(query)})")
    masked = tuple(app._mask(p) for p in problems)
    state: Literal["loading", "ready", "degraded"] = "ready"
    if loading or waiting or app._runner.starter.starting:
        state = "loading"
    elif masked:
        state = "degraded"
    return Readiness(state, loading, waiting, masked)
