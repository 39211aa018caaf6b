"""The journal of an app: one SQLite file in its state directory.

A commit is one transaction: the changes of all tables, the position, the rows sent to embedded streams. It is
there whole after a crash, or not at all.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from millpond.changes import Changes, Position
from millpond.errors import Closed, Error, StateUnwritable
from millpond.journal import facts
from millpond.journal.blobs import DATA, encode, placed, plain, remove_files
from millpond.journal.catalog import Entry, read_entries, remove_entry, write_entry
from millpond.journal.database import Mark, check, guarded, open_to_read, open_to_write
from millpond.journal.requests import GroupCommit, Request
from millpond.journal.roll import ROLL_BYTES, roll, trim
from millpond.journal.stored import (
    Rows,
    Schemas,
    files_in_use,
    read_changes,
    write_changes,
    write_segments,
)

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Journal:
    """Opened by the one process that holds the directory's lock; with ``read_only`` by any number.

    All methods may be called by many threads; commits of many threads share a sync. If not ``durable``,
    nothing survives the process: table changes and positions are only remembered, and streams are written
    unsynced, for other processes to read. Damage raises StateCorrupt, a full or unwritable disk
    StateUnwritable.
    """

    def __init__(self, directory: str | Path, *, durable: bool, read_only: bool = False):
        self._directory = Path(directory).absolute()
        self._durable = durable
        self._read_only = read_only
        self._closed = False
        self._schemas = Schemas()
        self._group = GroupCommit(self._write_group)
        with guarded(self._directory):
            self._connection = (
                open_to_read(self._directory) if read_only else open_to_write(self._directory, durable)
            )
            self._mark = Mark(self._directory, read_only=read_only)
            try:
                check(self._connection, self._directory)
                self._facts = facts.read(self._connection)
                self._mark.check(self._facts.revision)
                if not read_only:
                    self._remove_unnamed_files()
            except BaseException:
                self._mark.close()
                self._connection.close()
                raise

    def commit(
        self,
        changes: Mapping[str, Changes] | None = None,
        position: Position | None = None,
        sent: Mapping[str, pa.Table] | None = None,
        done: Sequence[str] = (),
    ) -> int | None:
        """Writes all of it in one transaction and answers the commit's number once it is durable.

        None if the position was applied before: then nothing is written. The rows ``sent`` to a stream get
        consecutive sequence numbers. ``done`` are ids of statements that are not to run again.
        """
        if self._applied(position):
            return None
        request = Request({}, {}, position, done)
        try:
            if self._durable:
                for name, change in (changes or {}).items():
                    if len(change):
                        request.changes[name.lower()] = self._prepared_changes(change)
            for stream, rows in (sent or {}).items():
                if rows.num_rows:
                    request.sent[stream.lower()] = self._prepared(rows)
            number = self._group.submit(request)
        except Exception:
            self._remove_unused(sorted(request.files))
            raise
        if number is None:
            remove_files(self._directory, request.files)
        return number

    def _prepared(self, rows: pa.Table) -> Rows:
        rows = plain(rows)
        blobs = placed(encode(rows), self._directory, self._durable)
        return Rows(rows.schema.serialize().to_pybytes(), tuple(blobs))

    def _prepared_changes(self, change: Changes) -> tuple[Rows, bool]:
        if change.deleted is None:
            return self._prepared(change.rows), False
        return self._prepared(change.rows.append_column("", change.deleted)), True

    def _applied(self, position: Position | None) -> bool:
        if position is None:
            return False
        known = self._facts.positions.get(position.pipeline)
        return known is not None and known.covers(position)

    def _write_group(self, group: list[Request]) -> None:
        """Called by one thread at a time, the lock held."""
        before = self._facts
        after = before.copy()
        numbers: list[int | None] = []

        def write(connection: sqlite3.Connection) -> None:
            sent_at = time.time()
            for request in group:
                known = after.positions.get(request.position.pipeline) if request.position else None
                if request.position and known and known.covers(request.position):
                    numbers.append(None)
                    continue
                after.last += 1
                numbers.append(after.last)
                self._write_request(connection, request, after, sent_at)

        if not self._durable and not any(r.sent for r in group):
            self._check_open()
            for request in group:
                if self._applied(request.position):
                    continue
                self._facts.last += 1
                request.number = self._facts.last
                if request.position:
                    self._facts.positions[request.position.pipeline] = request.position
                self._facts.done.update(request.done)
            return
        self._transaction(write, after)
        for request, number in zip(group, numbers, strict=True):
            request.number = number
        for stream in {s for r in group for s in r.sent}:
            if self._facts.inline.get(stream, 0) >= ROLL_BYTES:
                self._roll(stream)

    def _write_request(
        self, connection: sqlite3.Connection, request: Request, after: facts.Facts, sent_at: float
    ) -> None:
        for name, (rows, deletes) in request.changes.items():
            schema = self._schemas.number(connection, rows.schema)
            seals = write_changes(connection, name, after.last, rows, schema, snapshot=False, deletes=deletes)
            after.add_blobs(connection, name, seals)
        for name, rows in request.sent.items():
            schema = self._schemas.number(connection, rows.schema)
            first = after.ends.get(name, 0)
            after.set_end(connection, name, write_segments(connection, name, first, sent_at, rows, schema))
            after.inline[name] = after.inline.get(name, 0) + sum(len(b.data or b"") for b in rows.blobs)
        if request.position:
            after.set_position(connection, request.position)
        for statement in request.done:
            after.set_done(connection, statement)

    def _transaction(self, write: Callable[[sqlite3.Connection], T], after: facts.Facts | None = None) -> T:
        """Runs ``write`` in a transaction; ``after`` is what is known when it has succeeded. The lock is
        held.
        """
        self._check_open()
        if self._read_only:
            raise StateUnwritable(f'the state directory "{self._directory}" is open for reading only')
        after = after or self._facts.copy()
        with guarded(self._directory):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                result = write(self._connection)
                after.revision += 1
                after.write(self._connection, clean=False)
                self._connection.execute("COMMIT")
            except BaseException:
                self._schemas.forget()
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        self._facts = after
        if self._durable:
            self._mark.write(after.revision)
        return result

    def _locked_transaction(self, write: Callable[[sqlite3.Connection, facts.Facts], T]) -> T:
        with self._group.lock:
            after = self._facts.copy()
            return self._transaction(lambda connection: write(connection, after), after)

    def last_commit(self) -> int:
        """The newest commit's number; 0 before the first."""
        return self._facts.last

    def position(self, pipeline: str) -> Position | None:
        return self._facts.positions.get(pipeline)

    def positions(self) -> dict[str, Position]:
        """The newest position of every pipeline."""
        return dict(self._facts.positions)

    def forget(self, pipeline: str) -> None:
        """Drops the pipeline's position."""
        self._locked_transaction(lambda connection, after: after.drop_position(connection, pipeline))

    def done(self, statement: str) -> bool:
        """Whether a commit said that the statement is done."""
        return statement in self._facts.done

    def restore(self, table: str) -> Iterator[Changes]:
        """What to apply to an empty table, in order, the snapshot first; small commits are put together.

        Reads one moment, while commits go on. Raises StateCorrupt before the damaged part is handed out, or,
        if a part is missing, at the end.
        """
        self._check_open()
        name = table.lower()
        with guarded(self._directory), closing(open_to_read(self._directory)) as connection:
            connection.execute("BEGIN")
            blobs, total = facts.read_ledger(connection, name)
            for deletes, rows in read_changes(connection, self._directory, name, Schemas(), blobs, total):
                if deletes:
                    at = rows.num_columns - 1
                    yield Changes(rows.remove_column(at), rows.column(at).combine_chunks())
                else:
                    yield Changes(rows)

    def pending(self, table: str) -> int:
        """How many blobs of changes a restore reads besides the snapshot: if many, ``compact`` is due."""
        with self._group.lock, guarded(self._directory):
            self._check_open()
            count = "SELECT COUNT(*) FROM changes WHERE name = ? AND is_snapshot = 0"
            return int(self._connection.execute(count, (table.lower(),)).fetchone()[0])

    def compact(self, table: str, rows: pa.Table, *, commit: int | None = None) -> None:
        """Replaces what is kept of the table, up to ``commit`` or the newest, by its ``rows`` after that
        commit.
        """
        if not self._durable:
            return
        name = table.lower()
        prepared = self._prepared(rows)

        def write(connection: sqlite3.Connection, after: facts.Facts) -> list[str]:
            number = after.last if commit is None else commit
            old = connection.execute(
                "SELECT DISTINCT file FROM changes WHERE name = ? AND number <= ? AND file IS NOT NULL",
                (name, number),
            ).fetchall()
            connection.execute("DELETE FROM changes WHERE name = ? AND number <= ?", (name, number))
            schema = self._schemas.number(connection, prepared.schema)
            write_changes(connection, name, number, prepared, schema, snapshot=True, deletes=False)
            after.recount(connection, name)
            return [row[0] for row in old]

        try:
            old = self._locked_transaction(write)
        except Exception:
            self._remove_unused(sorted(prepared.files))
            raise
        self._remove_unused(old)

    def drop_table(self, table: str) -> None:
        """Forgets all rows of the table."""
        name = table.lower()

        def write(connection: sqlite3.Connection, after: facts.Facts) -> list[str]:
            old = connection.execute(
                "SELECT DISTINCT file FROM changes WHERE name = ? AND file IS NOT NULL", (name,)
            ).fetchall()
            connection.execute("DELETE FROM changes WHERE name = ?", (name,))
            after.drop_ledger(connection, name)
            return [row[0] for row in old]

        self._remove_unused(self._locked_transaction(write))

    def stream_end(self, stream: str) -> int:
        """The sequence number that the next row will get."""
        return self._facts.ends.get(stream.lower(), 0)

    def trim_stream(self, stream: str, before_seq: int) -> None:
        """Lets go of rows below ``before_seq``, as far as whole segments are below it."""
        name = stream.lower()
        self._remove_unused(
            self._locked_transaction(lambda connection, _: trim(connection, name, before_seq))
        )

    def expire_stream(self, stream: str, before: float) -> None:
        """Lets go of segments whose rows were all sent before that time, in seconds since 1970."""
        name = stream.lower()
        with self._group.lock:
            self._check_open()
            first_kept = self._connection.execute(
                "SELECT MIN(first) FROM segments WHERE name = ? AND sent >= ?", (name, before)
            ).fetchone()[0]
        self.trim_stream(name, self.stream_end(name) if first_kept is None else first_kept)

    def drop_stream(self, stream: str) -> None:
        """Forgets the stream; one of that name begins again at 0."""
        name = stream.lower()

        def write(connection: sqlite3.Connection, after: facts.Facts) -> list[str]:
            old = trim(connection, name, after.ends.get(name, 0))
            after.drop_end(connection, name)
            return old

        self._remove_unused(self._locked_transaction(write))

    def _roll(self, stream: str) -> None:
        """The lock is held. The commit before has succeeded, so a failure only puts this off."""
        after = self._facts.copy()
        after.inline[stream] = 0
        try:
            self._transaction(
                lambda connection: roll(
                    connection, self._directory, stream, self._schemas, durable=self._durable
                ),
                after,
            )
        except Error as e:
            _log.warning('the rows of stream "%s" stay in the journal: %s', stream, e.message)
            self._facts.inline[stream] = 0

    def entries(self) -> list[Entry]:
        """The catalog, in the order in which its entries were first put."""
        with self._group.lock, guarded(self._directory):
            self._check_open()
            return read_entries(self._connection)

    def put_entry(self, entry: Entry) -> None:
        """Adds the entry, or replaces the one with its kind and name."""
        self._locked_transaction(lambda connection, _: write_entry(connection, entry))

    def drop_entry(self, kind: str, name: str) -> None:
        self._locked_transaction(lambda connection, _: remove_entry(connection, kind, name))

    def close(self) -> None:
        """Ends all writing and marks the file as closed in order. A second call does nothing."""
        with self._group.lock:
            if self._closed:
                return
            if not self._read_only:
                with guarded(self._directory):
                    self._facts.write(self._connection, clean=True)
            self._closed = True
            self._connection.close()
            self._mark.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the journal is closed")

    def _remove_unused(self, files: Sequence[str]) -> None:
        """Removes those of the files that the journal does not name."""
        if not files:
            return
        with self._group.lock:
            if self._closed:
                return
            for at in range(0, len(files), 500):
                some = files[at : at + 500]
                remove_files(self._directory, set(some) - files_in_use(self._connection, some))

    def _remove_unnamed_files(self) -> None:
        if (self._directory / DATA).exists():
            present = {p.name for p in (self._directory / DATA).iterdir()}
            remove_files(self._directory, present - files_in_use(self._connection))
