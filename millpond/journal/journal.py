"""Implements the journal of an app: one SQLite file in its state directory.

A commit is one transaction: the changes of all tables, the position, the rows sent to embedded streams. After a crash
it exists completely, or not at all.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa

from millpond import faults
from millpond.changes import Changes, Position, with_time
from millpond.journal.blob_rows import Adapt, Rows, Schemas, read_changes, write_changes
from millpond.journal.blobs import Blob, decode, place_rows, plain, remove_files
from millpond.journal.catalog import Entry, read_entries, remove_entry, write_entry
from millpond.journal.commit_cache import Facts, Weight, read_ledger
from millpond.journal.compaction import forget_snapshots, prepared_snapshot, sweep, taken_number
from millpond.journal.database import guarded, open_to_read
from millpond.journal.holds import lowest_held, removing
from millpond.journal.requests import Receipt, Request
from millpond.journal.responses import Answer, read_answer
from millpond.journal.revision import Revision, revise
from millpond.journal.roll import Trimmed, first_sent_since, first_within, trim_some
from millpond.journal.segment_files import place_segments
from millpond.journal.segments import stream_start
from millpond.journal.small_changes import RowChange
from millpond.journal.writer import Writer

Place = Callable[[pa.Table, Path, bool], list[Blob]]
"""Returns rows as they are to be stored."""


class Journal:
    """Reads and writes the journal. The one process that holds the directory's lock opens it; with ``read_only`` any
    number of processes can.

    All methods can be called by many threads; commits of many threads share a sync. If not ``durable``, nothing
    survives the process: table changes and positions are only in memory, and streams are written unsynced, for other
    processes to read. ``now`` is the time at which rows are sent, in seconds since 1970. Damage raises StateCorrupt, a
    full or unwritable disk StateUnwritable.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        durable: bool,
        read_only: bool = False,
        now: Callable[[], float] = time.time,
    ):
        self._directory = Path(directory).absolute()
        self.durable = durable
        self.read_only = read_only
        self._writer = Writer(self._directory, durable=durable, read_only=read_only, now=now)
        self._now = now
        self._timed: set[str] = set()

    def commit(
        self,
        changes: Mapping[str, Changes] | None = None,
        position: Position | None = None,
        sent: Mapping[str, pa.Table] | None = None,
        done: Sequence[str] = (),
        others: Sequence[Position] = (),
        *,
        sync: bool = True,
        answer: Answer | None = None,
        receipt: Receipt | None = None,
    ) -> int | None:
        """Writes all of it in one transaction and returns the commit's number once it is durable.

        Without ``sync`` it returns when the process can end without a loss; the disk follows within a tenth of a
        second. Returns None if the position was applied before: then nothing is written. ``others`` are positions of
        further pipelines. The rows ``sent`` to a stream get consecutive sequence numbers. ``done`` are ids of
        statements that must not run again. An ``answer`` is stored with it. Once it is durable, ``receipt`` has the
        number, also if the caller is interrupted.
        """
        positions = (*others, *(() if position is None else (position,)))
        if self._writer.applied(positions):
            return None
        request = Request({}, {}, positions, done, sync, answer, receipt or Receipt())
        try:
            for name, change in (changes or {}).items() if self.durable else ():
                if len(change):
                    request.changes[name.lower()] = self._prepared_changes(
                        change, timed=name.lower() in self._timed
                    )
            for stream, rows in (sent or {}).items():
                if rows.num_rows:
                    request.sent[stream.lower()] = self._prepared(rows, place_segments)
            faults.reach("journal: prepared")
            number = self._writer.submit(request)
        except Exception:
            self._writer.remove_unused(sorted(request.files))
            raise
        if number is None:
            remove_files(self._directory, request.files)
        return number

    def commit_rows(self, changes: Sequence[RowChange], *, sync: bool, receipt: Receipt) -> int:
        """Writes changes of single rows as one commit, as ``commit`` does."""
        faults.reach("journal: prepared")
        return self._writer.write_rows(changes, receipt, sync=sync)

    def time_rows(self, table: str, *, timed: bool) -> None:
        """Sets whether the rows of a table are stored with the time of their change."""
        (self._timed.add if timed else self._timed.discard)(table.lower())

    def number(self) -> int:
        """Returns the number of a commit that has nothing to write."""
        return self._writer.number()

    def _prepared(self, rows: pa.Table, place: Place = place_rows) -> Rows:
        rows = plain(rows)
        blobs = place(rows, self._directory, self.durable)
        return Rows(rows.schema.serialize().to_pybytes(), tuple(blobs))

    def _prepared_changes(self, change: Changes, *, timed: bool) -> tuple[Rows, bool]:
        rows = with_time(change.rows, self._now()) if timed else change.rows
        if change.deleted is None:
            return self._prepared(rows), False
        return self._prepared(rows.append_column("", change.deleted)), True

    def last_commit(self) -> int:
        """Returns the newest commit's number; 0 before the first."""
        return self._writer.facts.last

    def compacted(self, table: str) -> int | None:
        """Returns the commit whose rows ``compact`` has stored last; None if it has not."""
        with self._writer.reading() as connection:
            query = "SELECT MAX(number) FROM changes WHERE name = ? AND is_snapshot = 1"
            found: int | None = connection.execute(query, (table.lower(),)).fetchone()[0]
            return found

    def boundary(self) -> int:
        """Returns the newest commit's number, for a snapshot that ``compact`` is given: later changes are stored apart
        from earlier ones. The caller makes sure that no commit comes in between.
        """
        self._writer.fold()
        return self._writer.facts.last

    def position(self, pipeline: str) -> Position | None:
        return self._writer.facts.positions.get(pipeline)

    def positions(self) -> dict[str, Position]:
        """Returns the newest position of every pipeline."""
        return dict(self._writer.facts.positions)

    def forget(self, pipeline: str) -> None:
        """Drops the pipeline's position."""
        if self.position(pipeline) is None:
            return
        self._writer.transaction(lambda connection, after: after.drop_position(connection, pipeline))

    def done(self, statement: str) -> bool:
        """Returns whether a commit recorded that the statement is done."""
        return statement in self._writer.facts.done

    def all_done(self) -> frozenset[str]:
        """Returns all statements of which commits recorded that they are done."""
        return frozenset(self._writer.facts.done)

    def answer(self, key: str) -> Answer | None:
        """Returns the response that a commit stored under that key."""
        with self._writer.reading() as connection:
            return read_answer(connection, key)

    def restore(self, table: str, adapt: Adapt | None = None, *, after: int = -1) -> Iterator[Changes]:
        """Yields what to apply to an empty table, in order, the snapshot first; small commits are merged.
        ``adapt`` gets the rows of each commit with its number, and returns them with the current columns. Of a table
        that has all commits up to ``after`` it yields those after it.

        Reads one snapshot, while commits continue. Raises StateCorrupt before the damaged part is returned, or, if a
        part is missing, at the end.
        """
        self._writer.fold()
        name = table.lower()
        with guarded(self._directory), closing(open_to_read(self._directory)) as connection:
            connection.execute("BEGIN")
            ledger = read_ledger(connection, name)
            found = read_changes(connection, self._directory, name, Schemas(), *ledger, adapt, after)
            for deletes, rows in found:
                yield from _changes(rows, deletes)
        # Where nothing can be written, the log has the newest changes.
        for number, stored, deletes in self._writer.logged(name):
            if number <= after:
                continue
            schema = pa.ipc.read_schema(pa.py_buffer(stored.schema))
            for blob in stored.blobs:
                batch = decode(blob, schema, self._directory, f'table "{name}"')
                rows = batch if adapt is None else adapt(number, batch)
                yield from _changes(pa.Table.from_batches([rows]), deletes)

    @property
    def compact_after(self) -> int:
        """Sets how much the changes of a table may weigh before ``take_due`` names it: their bytes, and 16
        kB for each.
        """
        return self._writer.compact_after

    @compact_after.setter
    def compact_after(self, size: int) -> None:
        self._writer.compact_after = size

    def when_due(self, call: Callable[[], None]) -> None:
        """Calls it when ``take_due`` has a table to name, from the thread that commits, and now if it has."""
        self._writer.when_due(call)

    def take_due(self) -> list[str]:
        """Returns the tables whose changes weigh more than ``compact_after``, and more than the rows of
        their snapshot.
        """
        return self._writer.take_due()

    def weight(self, table: str) -> Weight:
        """Returns what a restart has to read of the table."""
        return self._writer.weight(table.lower())

    def snapshot(self, parts: Iterable[pa.Table]) -> Rows:
        """Writes the rows of a table next to the journal. They become valid with ``compact``, or not at all."""
        return prepared_snapshot(parts, self._directory)

    def compact(self, table: str, rows: Rows, *, commit: int, last_row: int | None = None) -> None:
        """Replaces what is stored of the table up to ``commit`` by its rows after that commit. A table without a key
        has numbers for its rows, the last of which was ``last_row``, if it is deleted. ``sweep`` then frees space.
        """
        name = table.lower()
        taken = None if last_row is None else self._prepared(taken_number(last_row))

        def write(connection: sqlite3.Connection, after: Facts) -> None:
            forget_snapshots(connection, name, commit)
            for prepared, deletes in ((rows, False), *(((taken, True),) if taken is not None else ())):
                schema = self._writer.schemas.number(connection, prepared.schema)
                write_changes(connection, name, commit, prepared, schema, snapshot=True, deletes=deletes)
            after.recount(connection, name)

        self._writer.transaction(write)

    def discard(self, rows: Rows) -> None:
        """Removes the file of rows that will not become valid."""
        self._writer.remove_unused(sorted(rows.files))

    def sweep(self, table: str) -> bool:
        """Removes some invalid data of the table; returns whether there may be more."""
        name = table.lower()
        old, more = self._writer.transaction(lambda connection, _: sweep(connection, name), sync=False)
        self._writer.remove_unused(old)
        return more

    def shrink(self) -> bool:
        """Returns some free space of the file to the disk; returns whether there is more."""
        return self._writer.shrink()

    def drop_table(self, table: str) -> None:
        """Removes all rows of the table."""
        if self.has_table(table):
            self.revise(Revision(tables=(table,)))

    def has_table(self, table: str) -> bool:
        """Returns whether there are rows, or changes, of the table."""
        return table.lower() in self._writer.facts.ledgers or self._writer.has_logged(table.lower())

    def table_names(self) -> list[str]:
        """Returns the tables of which there are rows, in lower case."""
        return list(self._writer.facts.ledgers)

    def revise(self, revision: Revision) -> None:
        """Changes the catalog, and removes the data of dropped entries, in one transaction."""
        files = self._writer.transaction(lambda connection, after: revise(connection, after, revision))
        self._writer.remove_unused(files)

    def alter(self, revision: Callable[[int], Revision], rows: Mapping[str, Rows] | None = None) -> None:
        """Changes the catalog in a commit of its own, and passes its number to what makes the revision: changes of
        tables have smaller numbers before it, and larger ones after it. ``rows``, made by ``snapshot``, become those of
        tables that the revision forgets, or that have none.
        """

        def write(connection: sqlite3.Connection, after: Facts) -> list[str]:
            after.last += 1
            files = revise(connection, after, revision(after.last))
            for table, stored in (rows or {}).items():
                name, schema = table.lower(), self._writer.schemas.number(connection, stored.schema)
                write_changes(connection, name, after.last, stored, schema, snapshot=True, deletes=False)
                after.recount(connection, name)
            return files

        self._writer.remove_unused(self._writer.transaction(write))

    def stream_end(self, stream: str) -> int:
        """Returns the sequence number of the next row."""
        return self._writer.facts.ends.get(stream.lower(), 0)

    def stream_first(self, stream: str) -> int:
        """Returns the sequence number of the earliest stored row; that of the next row, if there is none."""
        return stream_start(self._directory, stream)

    def trim_stream(self, stream: str, before_seq: int) -> int:
        """Removes rows below ``before_seq`` that no batch reads, as far as whole segments are below it: some at a time,
        with commits in between. Returns how many.
        """
        name, rows, more = stream.lower(), 0, True
        while more:
            with removing:
                before = lowest_held(self._directory, name, before_seq)
                done = self._writer.transaction(partial(_trim, name, min(before, before_seq)))
            faults.reach("old rows: trimmed")
            self._writer.remove_unused(done.files)
            rows, more = rows + done.rows, done.more
        return rows

    def expire_stream(self, stream: str, before: float) -> int:
        """Removes segments whose rows were all sent before that time, in seconds since 1970; returns how many rows."""
        return self._keep_from(stream, lambda connection, name: first_sent_since(connection, name, before))

    def limit_stream(self, stream: str, size: int) -> int:
        """Removes old segments as far as all take more than so many bytes; returns how many rows."""
        return self._keep_from(stream, lambda connection, name: first_within(connection, name, size))

    def _keep_from(self, stream: str, find: Callable[[sqlite3.Connection, str], int | None]) -> int:
        """Removes the rows before the one that ``find`` returns, or all of the present ones."""
        self._writer.check_open()
        name, end = stream.lower(), self.stream_end(stream)
        with guarded(self._directory), closing(open_to_read(self._directory)) as connection:
            connection.execute("BEGIN")
            query = "SELECT MIN(first) FROM segments WHERE name = ?"
            oldest, first = connection.execute(query, (name,)).fetchone()[0], find(connection, name)
        before = end if first is None else first
        return 0 if oldest is None or before <= oldest else self.trim_stream(name, before)

    def drop_stream(self, stream: str) -> None:
        """Removes the stream; a new one of that name begins again at 0."""
        self.revise(Revision(streams=(stream,)))

    def entries(self) -> list[Entry]:
        """Returns the catalog, in the order in which its entries were first put."""
        with self._writer.reading() as connection:
            return read_entries(connection)

    def put_entry(self, entry: Entry) -> None:
        """Adds the entry, or replaces the one with its kind and name."""
        self._writer.transaction(lambda connection, _: write_entry(connection, entry))

    def drop_entry(self, kind: str, name: str) -> None:
        self._writer.transaction(lambda connection, _: remove_entry(connection, kind, name))

    def sync(self) -> None:
        """Waits until all commits are on the disk."""
        self._writer.sync()

    def close(self) -> None:
        """Ends all writing and marks the file as closed cleanly. A second call does nothing."""
        self._writer.close()

    def abandon(self) -> None:
        """Releases the files as the end of the process would, without a last write."""
        self._writer.abandon()


_TRIMMED_AT_ONCE = 1_000
"""Segments of a stream that are removed in one transaction."""


def _trim(stream: str, before: int, connection: sqlite3.Connection, after: Facts) -> Trimmed:
    done = trim_some(connection, stream, before, _TRIMMED_AT_ONCE)
    if done.inline:
        after.inline[stream] = max(0, after.inline.get(stream, 0) - done.inline)
    return done


def _changes(rows: pa.Table, deletes: bool) -> Iterator[Changes]:
    """Yields stored rows as changes, if there are any; with ``deletes`` the last column says which are deleted."""
    if deletes:
        at = rows.num_columns - 1
        yield Changes(rows.remove_column(at), rows.column(at).combine_chunks())
    elif rows.num_rows:
        yield Changes(rows)
