"""Writes the changes of tables to streams, in the commits that make them.

A changelog is a stream of the journal that belongs to one running statement. It begins with the rows of its table as
of one commit. From then on each commit that changes the table also sends its changes to it, so nothing is lost and
nothing is there twice, whenever the process ends. What the statement has delivered is removed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond import faults
from millpond.changelog import ADDED, CHANGED, FIRST, GONE, NEW, OLD, OP, READ, TIME, changelog_schema
from millpond.changes import ROW, Changes
from millpond.clock import Clock
from millpond.journal.catalog import Entry
from millpond.journal.journal import Journal
from millpond.journal.revision import Revision
from millpond.records.keys import key_list
from millpond.store.undo import safely
from millpond.tables.base import Backend, Snapshot
from millpond.types import Schema

CHANGELOG = "changelog"
"""The kind of the journal's entry that names a changelog and its table."""
_PART = 131_072
"""Rows of a table that are sent at once when a changelog begins."""
_TRIM_ROWS, _TRIM_SECONDS = 20_000, 10.0
"""Delivered rows, or seconds, after which delivered rows are removed: that is a transaction of its own."""


@dataclass(slots=True)
class _Changelog:
    table: str
    trimmed: int = 0
    at: float = 0.0


class Changelogs:
    """Stores which tables have changelogs. All but ``trim`` is called by a thread that may write."""

    def __init__(self, journal: Journal, clock: Clock):
        self._journal = journal
        self._clock = clock
        self._logs: dict[str, _Changelog] = {}
        self._of: dict[str, list[str]] = {}

    def __contains__(self, stream: str) -> bool:
        return stream.lower() in self._logs

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._logs))

    def captures(self, table: str) -> bool:
        """Returns whether changes of the table go to a changelog."""
        return table.lower() in self._of

    @property
    def ends(self) -> dict[str, int]:
        """Returns the number of the next change of each changelog."""
        return {stream: self._journal.stream_end(stream) for stream in self}

    def restore(self, entry: Entry) -> None:
        """Goes on with a changelog of a state directory, before anything is committed."""
        self._add(entry.name.lower(), str(entry.data["table"]))

    def _add(self, stream: str, table: str) -> None:
        self._logs[stream] = _Changelog(table, at=time.monotonic())
        self._of.setdefault(table, []).append(stream)

    def begin(self, stream: str, table: str, backend: Backend) -> None:
        """Begins a changelog with the rows of its table. It counts from the moment that its entry is stored: what a
        kill leaves before that is removed by the next ``begin``.
        """
        name = stream.lower()
        if self._journal.stream_end(name):
            self._journal.drop_stream(name)
        try:
            self._fill(name, backend)
            faults.reach("changelog: filled")
            self._journal.put_entry(Entry(stream, CHANGELOG, "", {"table": table.lower()}))
        except BaseException:
            safely(lambda: self._journal.drop_stream(name))
            raise
        self._add(name, table.lower())

    def _fill(self, name: str, backend: Backend) -> None:
        """Sends the rows of a table."""
        snapshot, schema = backend.snapshot(), backend.schema
        for part in snapshot.parts():
            rows = part.select(list(schema.names)).cast(schema.arrow())
            for start in range(0, rows.num_rows, _PART):
                some = rows.slice(start, _PART)
                ops = np.full(some.num_rows, READ, dtype=object)
                sent = self._rows(name, schema, ops, _nothing(schema, len(some)), some)
                self._journal.commit({}, None, {name: sent})

    def end(self, stream: str) -> None:
        """Removes a changelog."""
        name = stream.lower()
        log = self._logs.pop(name, None)
        if log is not None:
            left = [other for other in self._of[log.table] if other != name]
            self._of[log.table] = left
            if not left:
                del self._of[log.table]
        self._journal.revise(Revision([], [(CHANGELOG, name)], [], [name]))

    def trim(self, stream: str, before: int) -> None:
        """Removes changes that were delivered, now and then."""
        log = self._logs.get(stream.lower())
        now = time.monotonic()
        if log is None or before == log.trimmed:
            return
        if before - log.trimmed >= _TRIM_ROWS or now - log.at >= _TRIM_SECONDS:
            log.trimmed, log.at = before, now
            self._journal.trim_stream(stream, before)

    def sent(self, changes: Mapping[str, Changes], tables: Mapping[str, Backend]) -> dict[str, pa.Table]:
        """Returns what a commit of these checked changes sends to the changelogs; ``tables`` are by name in lower
        case.
        """
        found: dict[str, pa.Table] = {}
        for name, change in changes.items() if self._of else ():
            streams = self._of.get(name.lower(), ())
            if streams:
                backend = tables[name.lower()]
                schema, images = backend.schema, _images(backend, change)
                found |= {s: self._rows(s, schema, *images) for s in streams if len(images[0])}
        return found

    def _rows(
        self, stream: str, schema: Schema, ops: npt.NDArray[np.object_], old: pa.Table, new: pa.Table
    ) -> pa.Table:
        count = len(ops)
        columns = {
            OP: pa.array(ops, pa.string()),
            TIME: pa.array(np.full(count, int(self._clock.seconds() * 1000), np.int64)),
            FIRST: pa.array(np.full(count, self._journal.stream_end(stream), np.int64)),
        }
        for which, image in ((OLD, old), (NEW, new)):
            columns |= {f"{which}{c.name}": image[c.name] for c in schema}
        return pa.table(columns, schema=changelog_schema(schema).arrow()).combine_chunks()


Images = tuple["npt.NDArray[np.object_]", pa.Table, pa.Table]
"""The operation of each change, the rows before, and the rows after them."""


def _images(backend: Backend, change: Changes) -> Images:
    """Returns the net changes of a commit, deletes first: their keys may come again."""
    schema, before = backend.schema, backend.snapshot()
    deleted = np.zeros(len(change), bool)
    if change.deleted is not None:
        deleted = np.asarray(change.deleted.fill_null(False))
    if not schema.key:
        return _unkeyed(schema, before, change, deleted)
    key = list(schema.key)
    rows = change.rows
    last = {k: at for at, k in enumerate(key_list([rows[name] for name in key]))}
    there = _fitted(before.get(key, rows.select(key), nulls=True), schema)
    places = {k: at for at, k in enumerate(key_list([there[name] for name in key]))}
    new_at = np.fromiter(last.values(), np.int64, len(last))
    old_at = np.fromiter((places.get(k, -1) for k in last), np.int64, len(last))
    order = np.lexsort((new_at, ~deleted[new_at]))
    order = order[~(deleted[new_at[order]] & (old_at[order] < 0))]
    new_at, old_at = new_at[order], old_at[order]
    gone = deleted[new_at]
    ops = np.where(gone, GONE, np.where(old_at < 0, ADDED, CHANGED)).astype(object)
    return ops, _taken(there, old_at, old_at < 0), _taken(_fitted(rows, schema), new_at, gone)


def _unkeyed(schema: Schema, before: Snapshot, change: Changes, deleted: npt.NDArray[np.bool_]) -> Images:
    """Returns the changes of a table without a key: a row that is replaced is deleted, and one is added."""
    rows = change.rows
    numbers: list[int] = []
    if ROW in rows.column_names:
        numbers = sorted(set(rows[ROW].drop_null().to_pylist()))
    old = _fitted(_numbered(before, numbers), schema) if numbers else _nothing(schema, 0)
    stays = np.flatnonzero(~deleted)
    if numbers:  # the last row of a number wins
        last = {n if n is not None else (None, at): at for at, n in enumerate(rows[ROW].to_pylist())}
        stays = np.intersect1d(stays, np.fromiter(last.values(), np.int64, len(last)))
    new = _fitted(rows, schema).take(pa.array(stays))
    ops = np.array([GONE] * len(old) + [ADDED] * len(new), dtype=object)
    return (
        ops,
        pa.concat_tables([old, _nothing(schema, len(new))]),
        pa.concat_tables([_nothing(schema, len(old)), new]),
    )


def _numbered(before: Snapshot, numbers: list[int]) -> pa.Table:
    """Returns the rows with these numbers."""
    found = before.changed_since(before, numbers)
    if found is not None:
        return found[0]
    rows = before.scan(rows=True)
    return rows.filter(pc.is_in(rows[ROW], pa.array(numbers, pa.int64())))


def _fitted(rows: pa.Table, schema: Schema) -> pa.Table:
    """Returns the rows with the columns of the table; a delete may have its key alone."""
    there = set(rows.column_names)
    return pa.table(
        {c.name: rows[c.name] if c.name in there else pa.nulls(len(rows), c.type) for c in schema},
        schema=pa.schema([pa.field(c.name, c.type) for c in schema]),
    )


def _taken(rows: pa.Table, at: npt.NDArray[np.int64], missing: npt.NDArray[np.bool_]) -> pa.Table:
    """Returns rows by their places, with NULL in all columns where there is none."""
    return rows.take(pa.array(at, pa.int64(), mask=missing))


def _nothing(schema: Schema, rows: int) -> pa.Table:
    return pa.table({c.name: pa.nulls(rows, c.type) for c in schema})
