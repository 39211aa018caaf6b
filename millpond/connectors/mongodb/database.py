"""Implements one MongoDB database: reads that see whole commits, and commits that take effect as a whole."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from millpond import faults
from millpond.changes import Changes, Position
from millpond.connectors.mongodb.commit_application import Claim, apply_changes
from millpond.connectors.mongodb.commits import (
    COMMITS,
    POSITIONS,
    CollectionChanges,
    CommitChanges,
    Document,
    State,
    ended,
    is_gone,
    longs,
    owner_of,
    position_of,
)
from millpond.connectors.mongodb.connection import MongoConnection
from millpond.connectors.mongodb.newest import NewestCommit
from millpond.connectors.mongodb.trouble import SecondWriter
from millpond.connectors.table import OutsideTable
from millpond.errors import ConnectionLost, Error, SourceError
from millpond.retry import Patience
from millpond.tables.base import Backend, Database, Reading, Snapshot, Writing

if TYPE_CHECKING:
    from pymongo.collection import Collection

T = TypeVar("T")
log = logging.getLogger("millpond")

_GIVEN_UP = 15.0
"""Seconds without a sign of its owner after which a commit is applied by another process."""
_FRESH = 0.1
"""Seconds for which all commits count as applied, after they were."""
_TRIES, _RECENT = 20, 50


class MongoBacked(OutsideTable):
    """Represents a table that reads itself."""

    database: MongoDatabase

    @abstractmethod
    def reader(self, version: int) -> Snapshot:
        """Returns the table, which then had this version."""


class MongoReading(Reading):
    def __init__(self, version: int):
        self.version = version

    def snapshot(self, table: Backend) -> Snapshot:
        assert isinstance(table, MongoBacked)
        return table.reader(self.version)


class MongoWriting(Writing):
    """Collects changes that take effect together at the end."""

    def __init__(self, database: MongoDatabase, version: int):
        self.database = database
        self.version = version
        self.changes = CommitChanges()
        self.touched: list[OutsideTable] = []

    def snapshot(self, table: Backend) -> Snapshot:
        assert isinstance(table, MongoBacked)
        return table.reader(self.version)

    def apply(self, table: Backend, changes: Changes) -> None:
        assert isinstance(table, OutsideTable)
        table.change(self, changes)
        self.touched.append(table)

    def notify(self) -> None:
        """Tells the tables that they have changed."""
        for table in self.touched:
            table.changed()

    def document(self, collection: str, id_: Any) -> Document | None:
        """Returns a document as this commit leaves it."""
        changes = self.changes.collections.get(collection)
        if changes is not None and id_ in changes.documents:
            return changes.documents[id_]
        # Documents change after another commit only, and then this one begins again.
        database = self.database
        return database.once(lambda: database.collection(collection).find_one({"_id": id_}))

    def advance(self, position: Position) -> bool:
        known = position_of(self.document(POSITIONS, position.pipeline))
        if known is not None and known.covers(position):
            return False
        offsets = json.dumps(dict(position.offsets))
        stored = {"checkpoint": position.checkpoint, "batch": position.batch, "offsets": offsets}
        self.changes.put(POSITIONS, {"_id": position.pipeline, **stored})
        return True


class MongoDatabase(Database):
    """Represents a MongoDB database. Writes of this process are serialized; of two processes the second begins
    again.
    """

    def __init__(self, url: str, *, connections: int, retry_timeout: float, connect_timeout: float):
        self.connection = MongoConnection(
            url, connections=connections, retry_timeout=retry_timeout, connect_timeout=connect_timeout
        )
        self.name = self.connection.name
        self.collection, self.once, self.tried = (
            self.connection.collection,
            self.connection.once,
            self.connection.tried,
        )
        self._me = uuid.uuid4().hex
        self._owner = owner_of(self._me)
        self._newest = NewestCommit(self.connection, self._owner)
        self._writing = threading.RLock()
        self._unapplied = False
        self._applied_at = -math.inf
        try:
            with self._writing:
                self.patience.wait_for(self._settled, on=(ConnectionLost, SecondWriter))
        except BaseException:
            self.close()
            raise

    @property
    def patience(self) -> Patience:
        return self.connection.patience

    @patience.setter
    def patience(self, patience: Patience) -> None:
        self.connection.patience = patience

    # reading

    def version(self) -> int:
        state = self.tried(self._newest.read)
        return state.number if state is not None else 0

    def read(self) -> MongoReading:
        return MongoReading(self.version())

    def consistent(
        self, collection: str, work: Callable[[Collection[Document]], T]
    ) -> tuple[T, CollectionChanges | None]:
        """Reads a collection at one commit: what was found, and changes of it that may be in it, in part or not at
        all.
        """

        def tries() -> tuple[T, CollectionChanges | None]:
            for number in range(_TRIES):
                found = self._consistent(collection, work)
                if found is not None:
                    return found
                if number > 3:
                    time.sleep(0.005 * number)
            raise SecondWriter(f"{self.name}: others write faster than it can be read", hint="try again")

        with suppress(SecondWriter):
            return self.tried(tries)
        with self._writing:  # commits of this process wait
            return self.tried(tries)

    def _consistent(
        self, collection: str, work: Callable[[Collection[Document]], T]
    ) -> tuple[T, CollectionChanges | None] | None:
        before = self._newest.read()
        found = self.once(lambda: work(self.collection(collection)))
        after = self._newest.read()
        if before is None or after is None:
            return (found, None) if before is after else None
        if before.number == after.number and before.applied:
            return found, None
        # Documents change only while a commit is not applied: they may be those before or after the newest.
        if after.number != before.number + (1 if before.applied else 0) and after.number != before.number:
            return None
        changes = self._newest.changes_of(after)
        if changes is None:
            return None
        own = changes.collections.get(collection)
        if own is not None and (own.updates or own.dropped):
            return None
        return found, own

    def document(self, collection: str, id_: Any) -> Document | None:
        """Returns one document at the newest commit."""
        found, changes = self.consistent(collection, lambda c: c.find_one({"_id": id_}))
        return changes.documents[id_] if changes is not None and id_ in changes.documents else found

    def one(self, collection: str, id_: Any) -> Document | None:
        """Returns one document, which is whole by itself, in one request; in two if none was made just before."""
        if self._unapplied or not self.tried(self._all_applied):
            return self.document(collection, id_)
        return self.tried(lambda: self.collection(collection).find_one({"_id": id_}))

    def _all_applied(self) -> bool:
        """Returns whether all commits are applied, or were a moment ago: an app may have ended before it applied its
        last one.
        """
        began = time.monotonic()
        if began - self._applied_at < _FRESH:
            return True
        state = self._newest.read()
        if state is not None and not state.applied:
            return False
        self._applied_at = began
        return True

    # writing

    def write(self, work: Callable[[MongoWriting], T]) -> T:
        attempts: dict[str, tuple[MongoWriting, T]] = {}
        with self._writing:
            return self.patience.wait_for(
                lambda: self._write(work, attempts), on=(ConnectionLost, SecondWriter)
            )

    def when_free(self, work: Callable[[], object]) -> bool:
        """Does something between two commits of this process; returns False if one is being made."""
        free = self._writing.acquire(blocking=False)
        if free:
            try:
                work()
            finally:
                self._writing.release()
        return free

    def _write(self, work: Callable[[MongoWriting], T], attempts: dict[str, tuple[MongoWriting, T]]) -> T:
        """Makes a commit, unless an attempt before, by its token, has made it although its answer was lost."""
        state = self._settled()
        for token, (writing, done) in attempts.items():
            if token in state.recent:
                writing.notify()
                return done
        writing = MongoWriting(self, state.number)
        done = work(writing)
        if not writing.changes:
            return done
        parts, small = writing.changes.parts()
        token = uuid.uuid4().hex
        if not small:
            self._newest.store(token, state, parts)
        faults.reach("documents: stored")
        made = {
            "number": state.number + 1,
            "applied": False,
            "owner": self._owner,
            "token": token,
            "parts": 0 if small else len(parts),
            "beat": 0,
            "recent": [*state.recent, token][-_RECENT:],
            "changes": parts[0] if small else None,
        }
        attempts[token] = writing, done
        since = time.monotonic()
        if not self._newest.decide(state, longs(made)):
            self._newest.remove(token)
            raise SecondWriter(f"{self.name}: another writer was first", hint="try again")
        faults.reach("documents: decided")
        self._complete(State.read(made), writing.changes, since)
        writing.notify()
        return done

    def _complete(self, state: State, changes: CommitChanges, since: float) -> None:
        """Applies a commit that holds already: a lost connection leaves the rest to the next who writes."""

        def work() -> None:
            if not self._apply(state, changes, since):
                self._settled()  # another app applies it

        try:
            self.tried(work)
        except ConnectionLost as error:
            log.warning("%s; the commit is stored, and will be applied when it answers", error.message)

    def _settled(self) -> State:
        """Returns the state, after the newest commit has been applied."""
        watched, since = -1, time.monotonic()
        while True:
            state = self._newest.read()
            if state is None:
                self._newest.begin()
            elif state.applied:
                self._unapplied = False
                return state
            elif state.owner == self._owner or is_gone(state.owner):
                self._take_over(state)
            elif state.beat != watched:
                watched, since = state.beat, time.monotonic()
            elif time.monotonic() - since > _GIVEN_UP:
                self._take_over(state)
            else:
                time.sleep(0.01)

    def _take_over(self, state: State) -> None:
        """Applies a commit whose owner has ended."""
        since = self._newest.take_over(state)
        if since is not None:
            changes = self._newest.changes_of(state)
            if changes is not None:
                self._apply(state, changes, since)
            elif self._newest.is_open(state):
                raise SourceError(
                    f"{self.name}: the newest commit is not applied, and documents of {COMMITS} are missing",
                    hint="others have removed them; restore the database",
                )

    def _apply(self, state: State, changes: CommitChanges, since: float) -> bool:
        """Applies a commit that this object owned at a time; returns False if another one owns it now."""
        self._unapplied = True
        with Claim(self.connection, state, self._me, since) as claim:
            try:
                done = apply_changes(self.connection, changes, claim)
            except ConnectionLost:
                raise
            except Error as error:
                error.hint = (
                    "the commit is stored: remove what refuses it there, and the next write applies it"
                )
                raise
        self._unapplied = not done
        return done

    # positions

    def position(self, pipeline: str) -> Position | None:
        return position_of(self.document(POSITIONS, pipeline))

    def forget(self, pipeline: str) -> None:
        self.write(lambda writing: writing.changes.end(POSITIONS, pipeline))

    def forget_all(self, start: str) -> None:
        def work(writing: MongoWriting) -> None:
            found = self.once(lambda: list(self.collection(POSITIONS).find({}, {"_id": 1})))
            for each in found:
                if str(each["_id"]).startswith(start):
                    writing.changes.end(POSITIONS, each["_id"])

        self.write(work)

    def close(self) -> None:
        with self._writing:
            ended(self._me)
            self.connection.close()
