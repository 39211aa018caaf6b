"""Reports whether an app is ready, and if not, what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millpond.loading.followers import Followers, Mask
from millpond.loading.loader import Loader
from millpond.loading.progress import Load
from millpond.statements.lifetime import Lifetime
from millpond.statements.queries import Queries
from millpond.store.store import Store
from millpond.streaming.runner import Runner
from millpond.views.materialized_view import Views


@dataclass(frozen=True, slots=True)
class TableLoad:
    """Describes a load of a table: rows so far, the total and the percentage if known, and rows per second."""

    table: str
    rows: int
    of: int | None
    percent: int | None
    rate: float


@dataclass(frozen=True, slots=True)
class Readiness:
    """Reports how far an app has started. It is true when every table is loaded and every query runs.

    ``loading`` are the tables that are being loaded, ``waiting`` the queries that have not started, with the tables
    that they wait for. ``problems`` say why the app is degraded: it responds, but something has stopped.
    """

    state: Literal["loading", "ready", "degraded", "closed"]
    loading: tuple[TableLoad, ...] = ()
    waiting: dict[str, tuple[str, ...]] | None = None
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.state == "ready"


def readiness(
    lifetime: Lifetime,
    store: Store,
    loads: dict[str, Load],
    loader: Loader,
    followers: Followers,
    runner: Runner,
    views: Views,
    queries: Queries,
    mask: Mask,
) -> Readiness:
    """Returns the readiness of everything that runs in an app."""
    if lifetime.closed:
        return Readiness("closed")
    waiting = runner.starter.needed()
    found = {name: load for name in sorted(loader.running()) if (load := loads.get(name)) is not None}
    for pipeline in runner:
        load = runner.backfills.load_of(pipeline)
        if load is not None:
            found[pipeline.plan.target.name.lower()] = load
    loading = tuple(TableLoad(name, x.rows, x.of, x.percent, x.rate) for name, x in found.items())
    stopped = store.visibility.stopped
    problems = [] if stopped is None else [stopped.message]
    problems += [f'table "{n}": {x.error}' for n, x in loads.items() if x.error is not None]
    problems += [v.error.message for v in views if v.error is not None]
    for name, error in followers.errors().items():
        if name not in loads:
            problems.append(f'table "{name.removeprefix("table:")}": {error}')
    for pipeline in runner:
        if pipeline.state != "running":
            reason = pipeline.error.message if pipeline.error is not None else f'query "{pipeline.name}"'
            problems.append(f"{reason} ({pipeline.state})")
    for query, failed in runner.starter.failed_starts.items():
        problems.append(f"{failed.error.message} (query {query} is {queries.state(query)})")
    masked = tuple(mask(p) for p in problems)
    state: Literal["loading", "ready", "degraded"] = "ready"
    if loading or waiting or runner.starter.starting:
        state = "loading"
    elif masked:
        state = "degraded"
    return Readiness(state, loading, waiting, masked)
