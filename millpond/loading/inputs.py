"""Reads the rows of a query: from tables as of one commit, from outside sources as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa

from millpond import steps
from millpond.changes import Offset
from millpond.connectors import abilities
from millpond.connectors.source import Source
from millpond.loading.open_sources import OpenSource
from millpond.query.inputs import rows_of
from millpond.sql.pushdown import need_of, pushed
from millpond.sql.resolve import Resolved
from millpond.store.snapshot import StoreSnapshot


def read_all(source: Source) -> pa.Table:
    """Returns everything that a source has now."""
    return read_range(source, None, source.latest(None))


def read_range(source: Source, start: Offset | None, end: Offset) -> pa.Table:
    schema = source.schema().arrow()
    batches = [b.select(schema.names) for s in source.splits(start, end) for b in source.read(s)]
    return pa.Table.from_batches(batches, schema)


class Inputs:
    """Reads the inputs of queries."""

    def __init__(self, open_source: OpenSource):
        self._open_source = open_source

    def read(
        self, resolved: Resolved, snapshots: StoreSnapshot, sources: Mapping[str, pa.Table] | None = None
    ) -> dict[str, pa.Table]:
        """Returns the rows of a query's inputs by view; those of ``sources`` have been read."""
        found: dict[str, pa.Table] = dict(sources or {})
        where = pushed(resolved)
        for i in resolved.inputs:
            if i.view in found:
                continue
            if i.relation.kind == "source":
                source = abilities.narrowed(self._open_source(i.relation), need_of(resolved, i))
                found[i.view] = steps.timed(f"read {i.relation.name}", partial(read_all, source))
            else:
                found[i.view] = rows_of(i, snapshots, where.get(i.view))
        return found
