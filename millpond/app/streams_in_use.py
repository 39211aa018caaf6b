"""Finds the streams that an app reads."""

from __future__ import annotations

from millpond.loading.followers import Followers
from millpond.sql.catalog import Catalog, Relation
from millpond.streaming.runner import Runner


def streams_in_use(catalog: Catalog, runner: Runner, followers: Followers) -> list[Relation] | None:
    """Returns the streams and URIs that are read, or None while some statements could not be started: what they read is
    known only when they start.
    """
    if runner.starter.failed_starts:
        return None
    relations = [r for r in catalog if r.kind == "stream"]
    relations += [stream for p in runner for stream in p.plan.streams]
    relations += [stream for w in runner.starter for stream in w.plan.streams]
    return relations + followers.reads()
