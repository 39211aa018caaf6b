"""Implements ``memory://name``: a table or a stream of another app in the same process.

Apps publish their tables and embedded streams here by name. A table is followed: an offset names one version of it,
whose rows are stored while they may be requested. A stream is read where its app stores it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol
from urllib.parse import quote, unquote

import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors.abilities import Follows, Steps
from millpond.connectors.retention import Forgets, Hold
from millpond.connectors.source import Split, with_seq
from millpond.connectors.stream.source import StreamSource
from millpond.errors import SourceChanged, SourceError, UnknownName, did_you_mean
from millpond.types import Schema

VERSIONS_KEPT = 3
LOOK = 0.05
"""Seconds between two checks of the version of a table in memory."""
LOOK_OUTSIDE = 5.0
"""The same for a table in a database, which reports no versions."""


class Snapshot(Protocol):
    @property
    def version(self) -> int: ...

    def scan(self) -> pa.Table: ...


@dataclass(frozen=True, slots=True)
class Published:
    """Describes a published table or stream. ``id`` distinguishes it from others that had the name before."""

    name: str
    schema: Schema
    snapshot: Callable[[], Snapshot] | None = None
    versioned: bool = True
    """Whether the version of the table stays the same while nothing changes."""
    stream: str | None = None
    """Where the rows of a stream are."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


_lock = threading.Lock()
_published: dict[str, Published] = {}


def memory_uri(name: str) -> str:
    """Returns the URI of what is published under a name."""
    return f"memory://{quote(name, safe='')}"


def publish(what: Published) -> None:
    """Makes a table or stream readable as ``memory://name``, and replaces an earlier one of that name."""
    with _lock:
        _published[what.name.lower()] = what


def withdraw(what: Published) -> None:
    """Ends a publication; a missing one is no error."""
    with _lock:
        if _published.get(what.name.lower()) is what:
            del _published[what.name.lower()]


@dataclass(frozen=True, slots=True)
class MemorySplit(Split):
    of: str
    version: int


class MemorySource(Follows, Steps, Forgets):
    """Reads the rows of a table as of some versions, stored in this object; or those of a stream, which anybody can
    read.
    """

    kind: ClassVar[str] = "memory"
    schemes: ClassVar[tuple[str, ...]] = ("memory",)

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        super().__init__(uri, values, declared)
        self.name = unquote(uri.partition("://")[2].strip("/"))
        self._taken: dict[tuple[str, int], pa.Table] = {}
        self._rows: StreamSource | None = None

    @property
    def endless(self) -> bool:  # type: ignore[override]
        return self._stream() is not None

    @property
    def local(self) -> bool:  # type: ignore[override]
        return self._stream() is None

    @property
    def follows(self) -> bool:
        return True

    def _stream(self) -> StreamSource | None:
        """Returns where the rows of a stream are; None for a table."""
        if self._rows is None and not self._taken and (found := self._find()).stream is not None:
            self._rows = StreamSource(found.stream, {}, self.declared or found.schema)
        return self._rows

    def schema(self) -> Schema:
        return self.declared or (self._rows.schema() if self._rows is not None else self._find().schema)

    staged: ClassVar[bool] = True

    def latest(self, start: Offset | None) -> Offset:
        if (stream := self._stream()) is not None:
            return {"of": stream.uri, **stream.latest(self._within(start))}
        at = self._take()
        if self.reached(start, at):
            assert start is not None
            return start
        return at

    def _take(self) -> Offset:
        """Stores the current rows of the table."""
        found = self._find()
        if found.snapshot is None:
            raise SourceError(
                f'"{self.uri}" was a table and is a stream now', hint="read it in a new statement"
            )
        snapshot = found.snapshot()
        at = found.id, snapshot.version
        if at not in self._taken or not found.versioned:
            self._taken[at] = snapshot.scan()
            for old in list(self._taken)[:-VERSIONS_KEPT]:
                del self._taken[old]
        return {"of": at[0], "version": at[1], "rows": self._taken[at].num_rows}

    def changes(self, stop: threading.Event) -> Iterator[None]:
        seen: tuple[str, int] | None = None
        pause = LOOK
        while not stop.wait(pause):
            pause = LOOK
            with _lock:
                found = _published.get(self.name.lower())
            if found is None or found.snapshot is None:
                yield
                continue
            if not found.versioned:
                pause = LOOK_OUTSIDE
                yield
                continue
            now = found.id, found.snapshot().version
            if now != seen:
                seen = now
                yield

    def replaced(self, start: Offset, end: Offset) -> bool:
        return not self.endless and (start["of"], start["version"]) != (end["of"], end["version"])

    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        if (stream := self._stream()) is not None:
            return stream.splits(self._within(start), end)
        if self.reached(start, end):
            return []
        if (end["of"], end["version"]) not in self._taken:
            self._take()
        return [MemorySplit(end["rows"], None, end["of"], end["version"])]

    def clip(self, start: Offset | None, end: Offset, rows: int) -> Offset:
        stream = self._stream()
        return end if stream is None else {"of": end["of"], **stream.clip(self._within(start), end, rows)}

    def first(self) -> Offset:
        stream = self._stream()
        return self.latest(None) if stream is None else {"of": stream.uri, **stream.first()}

    def hold(self, start: Offset | None) -> Hold | None:
        stream = self._stream()
        return None if stream is None else stream.hold(self._within(start))

    def gap(self, start: Offset | None, end: Offset) -> range:
        stream = self._stream()
        return range(0) if stream is None else stream.gap(self._within(start), end)

    def reached(self, at: Offset | None, end: Offset) -> bool:
        if (stream := self._stream()) is not None:
            return stream.reached(self._within(at), end)
        return at is not None and (at["of"], at["version"]) == (end["of"], end["version"])

    def _within(self, at: Offset | None) -> Offset | None:
        """Returns the offset in the current stream; None if it is of another one."""
        assert self._rows is not None
        return at if at is not None and at["of"] == self._rows.uri else None

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        if not isinstance(split, MemorySplit):
            assert self._rows is not None
            yield from self._rows.read(split)
            return
        rows = self._taken.get((split.of, split.version))
        if rows is None:
            raise SourceChanged(f'"{self.uri}" has changed since')
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

    def _find(self) -> Published:
        with _lock:
            found = _published.get(self.name.lower())
            names = [p.name for p in _published.values()]
        if found is None:
            listed = f"published: {', '.join(sorted(names))}" if names else "no app has published one"
            raise UnknownName(
                f'no table or stream "{self.name}" is published in this process',
                hint=did_you_mean(self.name, names, listed),
            )
        return found
