"""Removes old rows of streams and tables while an app runs, in a thread of its own: 'retention' and 'ttl'."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from millpond.clock import Clock
from millpond.errors import Closed, Error
from millpond.sql.catalog import Relation
from millpond.sql.reserved_names import is_shadow
from millpond.store.expired_rows import PIECE, remove_expired
from millpond.store.store import Store

log = logging.getLogger("millpond")

EVERY, SELDOM = 1.0, 60.0
"""Seconds between two looks, at least and at most."""
SHARE = 20
"""How many times as long as a look took is waited after it."""


class OldRows:
    """Removes rows whose time is over by the clock of the app, or that are too many. ``relations`` returns what the app
    has. With a clock that stands there is no thread: whoever moves the clock calls ``remove``.
    """

    def __init__(self, store: Store, relations: Callable[[], Iterable[Relation]], clock: Clock):
        self._store = store
        self._relations = relations
        self._clock = clock
        self._next: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._end = threading.Event()
        self._removing = threading.Lock()

    @property
    def by_hand(self) -> bool:
        """Returns whether nothing is removed until ``remove`` is called."""
        return self._clock.stands

    def watch(self, relation: Relation) -> None:
        """Begins to look, if the relation has rows to remove some day."""
        if not _forgets(relation) or self._thread is not None or self.by_hand or self._end.is_set():
            return
        self._thread = threading.Thread(target=self._run, name="millpond-old-rows", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Waits for what it does just now, and stops."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(EVERY):
            try:
                self.remove(all_of_them=False)
            except Closed:
                return

    def remove(self, *, all_of_them: bool = True) -> int:
        """Removes what is too old, or too much, at this time; returns how many rows. Where a look takes long and finds
        little, it is taken less often, unless ``all_of_them`` are asked for; so it is after an error.
        """
        rows = 0
        with self._removing:
            for relation in [r for r in self._relations() if _forgets(r)]:
                if self._end.is_set():
                    break
                began = time.monotonic()
                if not all_of_them and began < self._next.get(relation.name, 0.0):
                    continue
                try:
                    rows += (some := self._remove(relation))
                    pause = 0.0 if some >= PIECE else min(SHARE * (time.monotonic() - began), SELDOM)
                except Closed:
                    raise
                except Exception as error:
                    why = error.message if isinstance(error, Error) else repr(error)
                    log.warning('old rows of "%s" stay for now: %s', relation.name, why)
                    pause = SELDOM
                self._next[relation.name] = time.monotonic() + pause
        return rows

    def _is_over(self, relation: Relation) -> bool:
        """Returns whether no more rows are removed: at the end, and if the table was altered, so that they may stay
        longer, or dropped.
        """
        return self._end.is_set() or not any(r is relation for r in self._relations())

    def _remove(self, relation: Relation) -> int:
        journal, kept, name = self._store.journal, relation.retention, relation.name
        if relation.ttl is not None:
            return remove_expired(self._store, relation, self._clock.now(), partial(self._is_over, relation))
        assert kept is not None
        if kept.seconds is not None:
            rows = journal.expire_stream(name, self._clock.seconds() - kept.seconds)
        else:
            assert kept.size is not None
            rows = journal.limit_stream(name, kept.size)
        while rows and not self._end.is_set() and journal.shrink():
            pass
        return rows


def _forgets(relation: Relation) -> bool:
    """Returns whether rows of it are removed some day. Those of a stream that is being built are still to be read."""
    if relation.kind == "stream" and is_shadow(relation.name):
        return False
    return relation.retention is not None or relation.ttl is not None
