"""Applies a commit that holds to its collections, as long as this app is the one that applies it.

An app that is not heard of for a while loses its commit to another one, and may come back. Therefore it asks before
each request whether the commit is still its own, unless it knew so a moment ago.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self

from millpond import faults
from millpond.connectors.mongodb.commits import (
    ONE,
    STATE,
    CollectionChanges,
    CommitChanges,
    Document,
    State,
    id_parts,
)
from millpond.connectors.mongodb.connection import MongoConnection
from millpond.errors import Error

_BEAT = 2.0
"""Seconds between two signs that the owner of a commit is at work; far less than those after which it loses it."""
_REQUESTS = 1000
"""Changes of documents in one request."""


class Claim:
    """Represents the right to apply a commit. While it is open, a thread shows others that its owner is at work."""

    def __init__(self, connection: MongoConnection, state: State, me: str, since: float):
        self._connection = connection
        self._asked = {**ONE, "token": state.token, "owner.object": me, "applied": False}
        self._since = since
        self._over = threading.Event()

    def __enter__(self) -> Self:
        with suppress(RuntimeError):  # the process is ending: then requests ask themselves
            threading.Thread(target=self._beat, name="millpond-mongodb-claim", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _beat(self) -> None:
        while not self._over.wait(_BEAT):
            with suppress(Error):  # then the next request asks itself
                if not self.renew():
                    return

    def holds(self) -> bool:
        """Returns whether the commit is still to be applied here."""
        return time.monotonic() - self._since < _BEAT or self.renew()

    def renew(self) -> bool:
        """Asks the server whether the commit is still to be applied here, and shows others that it is."""
        began = time.monotonic()
        if not self._say({"$inc": {"beat": 1}}):
            return False
        self._since = began
        return True

    def finish(self) -> bool:
        """Marks the commit as applied."""
        return self._say({"$set": {"applied": True}})

    def _say(self, what: Document) -> bool:
        state = self._connection.collection(STATE)
        return self._connection.once(lambda: state.update_one(self._asked, what)).matched_count == 1


def apply_changes(connection: MongoConnection, changes: CommitChanges, claim: Claim) -> bool:
    """Applies a commit; returns False if another app does. All that it does can be repeated."""
    for name, each in changes.collections.items():
        collection = connection.collection(name)
        if each.dropped:
            if not claim.renew():  # a drop that comes late would do the most harm
                return False
            connection.once(collection.drop)
        for where, how in each.updates:
            if not claim.holds():
                return False
            connection.once(lambda c=collection, w=where, h=how: c.update_many(w, h))  # type: ignore[misc]
        for part in _requests(each):
            if not claim.holds():
                return False
            connection.once(lambda c=collection, r=part: c.bulk_write(r, ordered=False))  # type: ignore[misc]
            faults.reach("documents: applied in part")
    return claim.finish()


def _requests(changes: CollectionChanges) -> Iterator[list[Any]]:
    """Yields the changes of documents, as many as one request has."""
    from pymongo import DeleteMany, ReplaceOne

    gone = [id_ for id_, document in changes.documents.items() if document is None]
    for ids, _ in id_parts(gone):
        yield [DeleteMany({"_id": {"$in": ids}})]
    put = [
        ReplaceOne({"_id": id_}, document, upsert=True)
        for id_, document in changes.documents.items()
        if document is not None
    ]
    for at in range(0, len(put), _REQUESTS):
        yield put[at : at + _REQUESTS]
