"""Opens what reads the streams of an app."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.connectors.sink import NativeSink
from millpond.connectors.source import NativeSource, Source
from millpond.errors import without_passwords
from millpond.sql.catalog import Relation
from millpond.store.store import Store
from millpond.streaming.sink_statement import SinkRows
from millpond.streaming.stages import Spark
from millpond.streaming.statement import RunningStatement

if TYPE_CHECKING:
    from millpond.engine.stream import Stream


class Readers:
    """Opens one loop for each source that statements read, which they share. With ``direct`` it reads on request,
    without a loop. Temporary files are in ``scratch``.
    """

    def __init__(self, store: Store, spark: Spark, scratch: Path, *, direct: bool):
        self._store = store
        self._spark = spark
        self._scratch = scratch
        self._direct = direct
        self._all: dict[str, Stream] = {}
        self._numbers = itertools.count()

    def __iter__(self) -> Iterator[Stream]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def find(self, statement: RunningStatement, source: Source) -> Stream:
        """Returns what reads a source; statements with the same source share it, except for those in
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
            relation = statement.plan.batch.stream.relation
            found = self._real_time(statement, source) if alone else self._plain(relation, source)
            self._all[key] = found
        return found

    def _real_time(self, statement: RunningStatement, source: Source) -> Stream:
        from millpond.engine.realtime import RealTimeQuery

        assert isinstance(statement, SinkRows)
        assert isinstance(statement.sink, NativeSink) and isinstance(source, NativeSource)
        seconds = statement.sink.values["commit.interval"]
        directory = self._scratch / f"stream-{next(self._numbers)}"
        return RealTimeQuery(source, statement.sink, self._store.snapshots, seconds, directory, self._spark)

    def _plain(self, relation: Relation, source: Source) -> Stream:
        from millpond.engine.direct import DirectStream
        from millpond.engine.loop import StreamLoop
        from millpond.engine.sizes import BatchSize

        limits = relation.limits
        size = BatchSize(limits.rows, limits.seconds) if limits is not None else BatchSize()
        if self._direct:
            return DirectStream(source, size, self._spark)
        subscribe = None
        if not relation.uri:
            subscribe = partial(self._store.visibility.listen_to_stream, relation.name)
        directory = self._scratch / f"stream-{next(self._numbers)}"
        return StreamLoop(without_passwords(relation.name), source, size, directory, self._spark, subscribe)

    def close(self, stream: Stream) -> None:
        """Ends what no statement needs any more."""
        self._all = {key: other for key, other in self._all.items() if other is not stream}
        stream.close()


def settle(streams: Sequence[Stream]) -> None:
    """Starts what a statement needs, and ends the others; waits until all are up."""
    for stream in streams:
        stream.settle()
    for stream in streams:
        stream.wait_until_up()
