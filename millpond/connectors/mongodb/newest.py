"""Reads and changes the one document that says which commit is the newest."""

from __future__ import annotations

import time
from collections.abc import Sequence

from millpond.connectors.mongodb.commits import COMMITS, ONE, STATE, CommitChanges, Document, State, longs
from millpond.connectors.mongodb.connection import MongoConnection
from millpond.connectors.mongodb.trouble import driver
from millpond.errors import ConnectionLost, Error


class NewestCommit:
    """Represents the newest commit of a database, for one that makes commits."""

    def __init__(self, connection: MongoConnection, owner: Document):
        self._owner = owner
        self.collection, self.once, self.tried = connection.collection, connection.once, connection.tried

    def read(self) -> State | None:
        found = self.once(lambda: self.collection(STATE).find_one(ONE, {"changes": 0}))
        return None if found is None else State.read(found)

    def is_open(self, state: State) -> bool:
        """Returns whether this commit is still the newest, and not applied."""
        now = self.read()
        return now is not None and now.token == state.token and not now.applied

    def changes_of(self, state: State) -> CommitChanges | None:
        """Returns the changes of the newest commit; None if there is a newer one."""
        if state.parts:
            parts = self._parts(state)
            return None if len(parts) < state.parts else CommitChanges.read(parts)
        asked = {**ONE, "number": state.number}
        found = self.once(lambda: self.collection(STATE).find_one(asked))
        return None if found is None else CommitChanges.read([found["changes"]] if found["changes"] else [])

    def _parts(self, state: State) -> list[Document]:
        return self.once(
            lambda: list(self.collection(COMMITS).find({"token": state.token}).sort([("part", 1)]))
        )

    def begin(self) -> None:
        first = {"number": 0, "applied": True, "parts": 0, "beat": 0, "recent": [], "changes": None}
        errors = driver().errors
        try:
            self.once(lambda: self.collection(STATE).insert_one({**ONE, **longs(first)}))
        except Error as error:
            if not isinstance(error.__cause__, errors.DuplicateKeyError):
                raise

    def store(self, token: str, state: State, parts: Sequence[Document]) -> None:
        """Stores the changes of a commit that has many, in place of those of commits that are over."""
        commits = self.collection(COMMITS)
        self.once(lambda: commits.delete_many({"number": {"$lt": state.number}}))
        for number, part in enumerate(parts):
            named = {"_id": f"{token}/{number}", "token": token, "part": number}
            stored = {**named, **longs({"number": state.number}), **part}
            self.once(lambda document=stored: commits.insert_one(document))  # type: ignore[misc]

    def remove(self, token: str) -> None:
        """Removes the changes of a commit that was not made."""
        self.once(lambda: self.collection(COMMITS).delete_many({"token": token}))

    def decide(self, state: State, made: Document) -> bool:
        """Makes a commit the newest; False if another one is."""
        asked = {**ONE, "number": state.number, "applied": True, "beat": state.beat}
        try:
            done = self.once(lambda: self.collection(STATE).update_one(asked, {"$set": made}))
            return done.matched_count == 1
        except ConnectionLost as lost:
            try:
                return self.tried(lambda: self._was_made(state, asked, made["token"]))
            except ConnectionLost as error:
                error.hint = "whether the last commit was made is not known: look before you repeat it"
                raise error from lost

    def _was_made(self, state: State, asked: Document, token: str) -> bool:
        """Returns whether a commit was made whose answer was lost. If not, it will not be: its request may be still on
        its way, and finds another state then.
        """
        while True:
            now = self.read()
            if now is not None and token in now.recent:
                return True
            if now is None or (now.number, now.beat) != (state.number, state.beat):
                return False
            self.once(lambda: self.collection(STATE).update_one(asked, {"$inc": {"beat": 1}}))

    def take_over(self, state: State) -> float | None:
        """Makes a commit whose owner has ended one of this owner; returns when it was asked for, and None if others
        were first.
        """
        asked = {**ONE, "token": state.token, "applied": False, "beat": state.beat}
        mine = {"$set": {"owner": self._owner}, "$inc": {"beat": 1}}
        since = time.monotonic()
        done = self.once(lambda: self.collection(STATE).update_one(asked, mine))
        return since if done.matched_count else None
