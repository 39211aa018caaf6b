"""Opens the queries that read the streams of an app."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.connectors.sink import NativeSink
from millpond.connectors.source import NativeSource, Source
from millpond.sql.catalog import Limits
from millpond.store.store import Store
from millpond.streaming.sink_statement import SinkRows
from millpond.streaming.stages import Spark
from millpond.streaming.statement import RunningStatement

if TYPE_CHECKING:
    from millpond.engine.direct import DirectStream
    from millpond.engine.stream import StreamQuery

    Reading = StreamQuery | DirectStream

_AT_ONCE = max(2, os.cpu_count() or 2)
"""Queries that start in parallel: each starts a process of its own."""


class Readers:
    """Opens one query for each source that statements read, which they share. With ``direct`` it reads on request,
    without Spark's own loop; its temporary files are in ``scratch``.
    """

    def __init__(self, store: Store, spark: Spark, scratch: Path, *, direct: bool):
        self._store = store
        self._spark = spark
        self._scratch = scratch
        self._direct = direct
        self._all: dict[str, Reading] = {}
        self._numbers = itertools.count()

    def __iter__(self) -> Iterator[Reading]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def find(self, statement: RunningStatement, source: Source) -> Reading:
        """Returns the query that reads a source; statements with the same source share it, except for those in
        real-time mode.
        """
        key = repr((source.uri, sorted(source.values.items()), source.schema()))
        alone = statement.plan.target.real_time and not self._direct
        if alone:
            key = f"real-time {statement.plan.name}"
        # It may have new columns.
        same = (s for s in self._all.values() if s.source is source and not alone)
        found = self._all.get(key) or next(same, None)
        if found is None:
            if not self._all:
                shutil.rmtree(self._scratch, ignore_errors=True)
            limits = statement.plan.batch.stream.relation.limits
            found = self._real_time(statement, source) if alone else self._plain(source, limits)
            self._all[key] = found
        return found

    def _real_time(self, statement: RunningStatement, source: Source) -> Reading:
        from millpond.engine.realtime import RealTimeQuery

        assert isinstance(statement, SinkRows)
        assert isinstance(statement.sink, NativeSink) and isinstance(source, NativeSource)
        seconds = statement.sink.values["commit.interval"]
        directory = self._scratch / f"stream-{next(self._numbers)}"
        return RealTimeQuery(source, statement.sink, self._store.snapshots, seconds, directory, self._spark)

    def _plain(self, source: Source, limits: Limits | None) -> Reading:
        from millpond.engine.direct import DirectStream
        from millpond.engine.sizes import BatchSize
        from millpond.engine.stream import StreamQuery

        size = BatchSize(limits.rows, limits.seconds) if limits is not None else BatchSize()
        if self._direct:
            return DirectStream(source, size, self._spark)
        return StreamQuery(source, size, self._scratch / f"stream-{next(self._numbers)}", self._spark)

    def close(self, reading: Reading) -> None:
        """Ends a query that no statement needs any more."""
        self._all = {key: other for key, other in self._all.items() if other is not reading}
        reading.close()


def settle(readings: Sequence[Reading]) -> None:
    """Starts the queries that a statement needs, a few at a time, and ends the others; waits until they are up."""
    starting: list[Reading] = []
    for reading in readings:
        reading.settle()
        starting.append(reading)
        if len(starting) >= _AT_ONCE:
            starting.pop(0).wait_until_up()
    for reading in starting:
        reading.wait_until_up()
