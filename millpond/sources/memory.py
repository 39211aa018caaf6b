"""``memory://name``: a table of another app in the same process, read once.

Apps publish their tables here by name; what is published is a function that gives the rows of this moment.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import unquote

import pyarrow as pa

from millpond.changes import Offset
from millpond.errors import SourceError, UnknownName, did_you_mean
from millpond.sources.base import Source, Split, with_seq
from millpond.types import Schema


@dataclass(frozen=True, slots=True)
class _Published:
    name: str
    snapshot: Callable[[], pa.Table]
    schema: Schema


_lock = threading.Lock()
_published: dict[str, _Published] = {}
_snapshots = itertools.count(1)


def publish(name: str, snapshot_fn: Callable[[], pa.Table], schema: Schema) -> None:
    """Makes a table readable as ``memory://name``, in place of an earlier one of that name."""
    with _lock:
        _published[name.lower()] = _Published(name, snapshot_fn, schema)


def withdraw(name: str) -> None:
    """Ends a publication; one that does not exist is no error."""
    with _lock:
        _published.pop(name.lower(), None)


@dataclass(frozen=True, slots=True)
class MemorySplit(Split):
    snapshot: int


class MemorySource(Source):
    """The rows as of the first ``latest()``, kept by this object so that a range can be read again."""

    kind: ClassVar[str] = "memory"
    schemes: ClassVar[tuple[str, ...]] = ("memory",)
    local: ClassVar[bool] = True

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        super().__init__(uri, values, declared)
        self.name = unquote(uri.partition("://")[2]).strip("/")
        self._taken: dict[int, pa.Table] = {}

    def schema(self) -> Schema:
        return self.declared or self._find().schema

    def latest(self, start: Offset | None) -> Offset:
        """Where ``start`` is given the table was read before: it is read once."""
        if start is not None:
            return start
        if not self._taken:
            self._taken[next(_snapshots)] = self._find().snapshot()
        number, rows = next(iter(self._taken.items()))
        return {"snapshot": number, "rows": rows.num_rows}

    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        if start is not None:
            return []
        return [MemorySplit(end["rows"], None, end["snapshot"])]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        assert isinstance(split, MemorySplit)
        rows = self._taken.get(split.snapshot)
        if rows is None:
            raise SourceError(
                f'the rows of "{self.uri}" are not in this process any more',
                hint="a table in memory can be read only by the process that holds it; load it again",
            )
        schema = self.schema()
        places = {name.lower(): i for i, name in enumerate(rows.schema.names)}
        arrays = [
            rows.column(places[f.name.lower()]).cast(f.type)
            if f.name.lower() in places
            else pa.chunked_array([pa.nulls(rows.num_rows, f.type)])
            for f in schema.arrow()
        ]
        seq = 0
        for batch in pa.Table.from_arrays(arrays, schema=schema.arrow()).to_batches():
            yield with_seq(batch, seq)
            seq += batch.num_rows

    def close(self) -> None:
        self._taken.clear()

    def _find(self) -> _Published:
        with _lock:
            found = _published.get(self.name.lower())
            names = [p.name for p in _published.values()]
        if found is None:
            listed = f"published: {', '.join(sorted(names))}" if names else "no app has published a table"
            raise UnknownName(
                f'no table "{self.name}" is published in this process',
                hint=did_you_mean(self.name, names, listed),
            )
        return found
