"""Commits rows that many requests post to streams at once together: they share the decoding, a commit and a sync."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from millpond.allowance import Allowance
from millpond.errors import Closed, DataError, SqlError, known
from millpond.http.failures import Refused
from millpond.http.posted_rows import Records, records_of, rows_of
from millpond.http.settings import Limits
from millpond.sql.catalog import Relation

SMALL_BODY = 1 << 16
"""Bytes of a body that is committed together with others."""
_MOST = 1_000
"""Requests that share a commit."""
_PATIENCE = 10.0
"""Seconds that a commit has to finish when the server is closed."""
Part = tuple[str, pa.Table]
"""Rows of a stream, with its name."""
Send = Callable[[Sequence[Part]], object]


@dataclass(slots=True, eq=False)
class Post:
    """Contains the body of one request, and the future that gets how many rows it has."""

    stream: Relation
    body: bytes
    ignore: bool
    future: asyncio.Future[int]
    records: Records = field(default_factory=list)


Outcome = tuple[Post, int | BaseException]
"""How many rows a request has sent, or why it was refused."""


class Posts:
    """Sends rows in a thread of its own, which takes all requests that wait. Each request is sent whole or refused, as
    if it were alone; ``send`` is called with the rows of several, of any streams, and sends all of them or none.
    """

    def __init__(self, send: Send, limits: Limits):
        self._send = send
        self._limits = limits
        self._waiting: deque[Post] = deque()
        self._news = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def send(self, stream: Relation, body: bytes, *, ignore: bool) -> int:
        """Returns the number of rows when they are durable. Raises Refused if too many requests wait, TimedOut if it
        takes too long: then what has not started does not start, and a commit that has started continues.
        """
        if len(self._waiting) >= self._limits.waiting:
            raise Refused(503, "busy", f"{len(self._waiting)} requests wait", hint="try again in a moment")
        allowance = Allowance(self._limits.seconds)
        post = Post(stream, body, ignore, asyncio.get_running_loop().create_future())
        self._begin()
        self._waiting.append(post)
        self._news.set()
        try:
            return await asyncio.wait_for(post.future, allowance.left)
        except TimeoutError:
            allowance.end()
            allowance.check()
            raise

    def _begin(self) -> None:
        if self._closed:
            raise Closed("the server is stopping")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="millpond-posts", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Refuses what has not begun, and what comes later."""
        self._closed = True
        self._news.set()
        left = self._taken(len(self._waiting))
        _answer([(post, Closed("the server is stopping")) for post in left])

    def close(self) -> None:
        """Ends the thread, after the commit that has started."""
        self.stop()
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        while not self._closed:
            self._news.wait()
            self._news.clear()
            while not self._closed and (taken := self._taken(_MOST)):
                _answer(self._sent([post for post in taken if not post.future.done()]))

    def _taken(self, most: int) -> list[Post]:
        """Takes the requests that wait, at most so many."""
        taken: list[Post] = []
        with suppress(IndexError):  # another thread may take them too
            while len(taken) < most:
                taken.append(self._waiting.popleft())
        return taken

    def _sent(self, posts: list[Post]) -> list[Outcome]:
        """Sends the rows of requests; returns the outcome of each."""
        outcomes: list[Outcome] = []
        by_stream: dict[int, list[Post]] = {}
        for post in posts:
            try:
                post.records = records_of(post.stream, post.body, ignore=post.ignore)
                by_stream.setdefault(id(post.stream), []).append(post)
            except Exception as error:
                outcomes.append((post, error))
        good: list[Post] = []
        parts: list[Part] = []
        for some in by_stream.values():
            try:
                every = [record for post in some for record in post.records]
                found = [(some[0].stream.name, rows_of(some[0].stream, every))]
            except Exception:  # each is decoded alone: only those that are wrong are refused
                some, found = _decoded(some, outcomes)
            good += some
            parts += found
        return outcomes + (self._committed(good, parts) if good else [])

    def _committed(self, posts: list[Post], parts: Sequence[Part]) -> list[Outcome]:
        try:
            self._send(parts)
        except (DataError, SqlError) as error:
            if len(posts) == 1:
                return [(posts[0], error)]
            # Nothing was sent. Each is sent alone: only those that are wrong are refused.
            return [outcome for post in posts for outcome in self._sent([post])]
        except BaseException as error:
            return [(post, known(error)) for post in posts]
        return [(post, len(post.records)) for post in posts]


def _decoded(posts: list[Post], outcomes: list[Outcome]) -> tuple[list[Post], list[Part]]:
    good, parts = [], []
    for post in posts:
        try:
            parts.append((post.stream.name, rows_of(post.stream, post.records)))
            good.append(post)
        except Exception as error:
            outcomes.append((post, error))
    return good, parts


def _answer(outcomes: list[Outcome]) -> None:
    """Passes the outcomes to the loop that waits for them, unless it has ended."""
    if outcomes:
        with suppress(RuntimeError):
            outcomes[0][0].future.get_loop().call_soon_threadsafe(_settle, outcomes)


def _settle(outcomes: list[Outcome]) -> None:
    for post, outcome in outcomes:
        if post.future.done():
            continue
        if isinstance(outcome, BaseException):
            post.future.set_exception(outcome)
        else:
            post.future.set_result(outcome)
