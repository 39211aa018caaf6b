"""Keeps tables current that follow something outside: files, HTTP responses, databases, tables of other apps.

Each has a thread for each of its sources, which waits until there may be something new. After a failure the table stays
as it was; it is stale then, and the follower retries.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from millpond.connectors import abilities
from millpond.connectors.source import Source
from millpond.errors import Closed, Error, SourceChanged, TimedOut, known
from millpond.loading.progress import Load
from millpond.retry import AGAIN
from millpond.sql.catalog import Relation
from millpond.steps import Steps, recording

log = logging.getLogger("millpond")
_CHANGING = 10.0
"""Seconds for which the source may change all the time before that is a failure."""
_PATIENCE = 5.0
"""Seconds to wait for a follower to end."""
_PAUSE = 0.05
"""Seconds between two checks of something that is not accepted yet."""


Mask = Callable[[str], str]
"""Removes secrets from a text."""
News = Callable[[threading.Event], Iterator[None]]
"""Yields whenever there may be something new, until the event is set."""


class Followed(Protocol):
    """Loads what is new in its sources, when a follower calls it."""

    def news(self) -> Sequence[News]:
        """Returns what reports that there may be something new."""

    @property
    def settled(self) -> bool:
        """Returns whether there is nothing new, nor anything that was seen and is not accepted yet."""

    @property
    def reads(self) -> Sequence[Relation]:
        """Returns the sources whose columns it uses."""

    def advance(self) -> int:
        """Loads what is new; returns how many rows that changed."""

    def close(self) -> None:
        """Releases its resources."""


class OverSources(ABC):
    """Reads from sources, which it names by view."""

    @property
    @abstractmethod
    def sources(self) -> Mapping[str, Source]: ...

    @property
    def follows(self) -> bool:
        return any(abilities.follows(source) for source in self.sources.values())

    def news(self) -> list[News]:
        followed = (source for source in self.sources.values() if abilities.follows(source))
        return [partial(abilities.changes, source) for source in followed]

    def close(self) -> None:
        for source in self.sources.values():
            source.close()


class Follower:
    """Runs the threads that keep one table, or a stream, current."""

    def __init__(self, loads: dict[str, Load], mask: Mask, name: str, kept: Followed):
        self.name = name
        self.error: Error | None = None
        self._loads = loads
        self._mask = mask
        self.kept = kept
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._tries = 0
        self._retry_at = 0.0
        self._changing_since: float | None = None

    def start(self) -> None:
        for news in self.kept.news():
            thread = threading.Thread(
                target=self._run, args=(news,), name=f"millpond-follow-{self.name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _run(self, news: News) -> None:
        while not self._stop.is_set():
            try:
                for _ in news(self._stop):
                    if not self._stop.wait(max(self._retry_at - time.monotonic(), 0.0)):
                        self.advance()
                    while (pause := self._pause()) is not None and not self._stop.wait(pause):
                        self.advance()
                return
            except Exception as error:
                # Nothing reports changes: after a while it polls.
                with self._turn:
                    self._fail(known(error))
                self._stop.wait(max(self._retry_at - time.monotonic(), _PAUSE))
                self.advance()

    def _pause(self) -> float | None:
        """Returns the seconds until the next retry; None if it waits for news."""
        if self.error is None:
            return None if self._is_settled() else _PAUSE
        return max(self._retry_at - time.monotonic(), _PAUSE) if self.error.retryable else None

    def _is_settled(self) -> bool:
        try:
            return self.kept.settled
        except Error as error:
            # The next check reports the error; a connection that was just lost may be back by then.
            return not error.retryable

    def advance(self) -> None:
        """Loads what is new. A failure is recorded as the follower's own."""
        with self._turn:
            if self._stop.is_set():
                return
            load = self._loads.get(self.name)
            try:
                with recording(load.steps if load is not None else Steps()):
                    rows = self.kept.advance()
            except Closed:
                return
            except SourceChanged as error:  # it is being written: the next check sees the result
                self._changing_since = self._changing_since or time.monotonic()
                if time.monotonic() - self._changing_since > _CHANGING:
                    self._fail(error)
                return
            except Exception as error:
                self._fail(known(error))
                return
            self._note(rows)

    def _fail(self, error: Error) -> None:
        pause = max(AGAIN.pause(self._tries), error.after)
        self._tries += 1
        self._retry_at = time.monotonic() + pause
        message = self._mask(error.message)
        if self.error is None or self.error.message != error.message:
            name = self._mask(self.name.removeprefix("table:").removeprefix("log:"))
            log.warning('table "%s" stays as it was: %s; trying again in %g s', name, message, pause)
        self.error = error
        if (load := self._loads.get(self.name)) is not None:
            self._loads[self.name] = replace(load, error=message)

    def _note(self, rows: int) -> None:
        load = self._loads.get(self.name)
        recovered, self.error, self._tries, self._retry_at = self.error is not None, None, 0, 0.0
        self._changing_since = None
        if load is not None and (rows or recovered):
            at = time.time() if rows else load.loaded_at
            self._loads[self.name] = replace(load, error=None, loaded_at=at)

    def drain(self, deadline: float) -> None:
        while True:
            self.advance()
            if self.error is not None:
                raise self.error
            if self._is_settled():
                return
            if time.monotonic() >= deadline:
                raise TimedOut(
                    f'not drained: table "{self.name}" is behind what it follows',
                    hint="wait longer with drain(timeout=…)",
                )
            time.sleep(_PAUSE)

    def stop(self) -> None:
        """Stops it: nothing is loaded afterwards."""
        self._stop.set()

    def join(self) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_PATIENCE)  # a thread that waits for a response of another system is left alone
        self.kept.close()


class Followers:
    """Manages all followers of an app, which record their state in ``loads``. With ``still`` they move when the app is
    drained, and not by themselves.
    """

    def __init__(self, loads: dict[str, Load], mask: Mask, *, still: bool = False):
        self._loads = loads
        self._mask = mask
        self._still = still
        self._followers: dict[str, Follower] = {}
        self.side_tables: set[str] = set()
        """Internal tables, by their names in lower case: for statements that read what is outside."""

    def add(self, name: str, kept: Followed) -> None:
        if (earlier := self._followers.get(name)) is not None:
            earlier.stop()
        follower = self._followers[name] = Follower(self._loads, self._mask, name, kept)
        if not self._still:
            follower.start()

    def remove(self, name: str) -> None:
        follower = self._followers.pop(name, None)
        if follower is not None:
            follower.stop()
            follower.join()

    def kept(self, name: str) -> Followed | None:
        follower = self._followers.get(name)
        return None if follower is None else follower.kept

    def gone(self, name: str, kept: Followed) -> None:
        """Ends a follower, unless another one has replaced it."""
        follower = self._followers.get(name)
        if follower is not None and follower.kept is kept:
            follower.stop()
            del self._followers[name]

    def __iter__(self) -> Iterator[tuple[str, Followed]]:
        return iter([(name, follower.kept) for name, follower in self._followers.items()])

    def errors(self) -> dict[str, str]:
        """Returns why something does not continue, by its name."""
        found = {name: follower.error for name, follower in list(self._followers.items())}
        return {name: self._mask(error.message) for name, error in found.items() if error is not None}

    def reads(self) -> list[Relation]:
        """Returns the sources that tables follow."""
        return [r for follower in list(self._followers.values()) for r in follower.kept.reads]

    def drain(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for follower in list(self._followers.values()):
            follower.drain(deadline)

    def close(self) -> None:
        for follower in self._followers.values():
            follower.stop()
        for follower in self._followers.values():
            follower.join()
