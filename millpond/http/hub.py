"""Passes commits to followers: one thread encodes, the event loop sends, and no commit waits for either."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from millpond.errors import Error
from millpond.http.channel import Channel, Delivery, reset
from millpond.http.failures import Refused
from millpond.http.follower import BEAT, Follower, event
from millpond.http.keyed_row import as_arrow
from millpond.http.responses import columns_of, encode, objects
from millpond.http.selection import Conditional, Selection
from millpond.http.settings import Limits
from millpond.sql.catalog import Catalog
from millpond.store.store import Store

if TYPE_CHECKING:
    from millpond.query.table import Table

log = logging.getLogger("millpond")
_LOOK = 1.0
"""Seconds between two checks whether a table still exists, and is still followed."""


class Hub:
    """Manages the tables that clients follow."""

    def __init__(self, store: Store, catalog: Catalog, mask_error: Callable[[Error], None], limits: Limits):
        self._store = store
        self._catalog = catalog
        self._mask_error = mask_error
        self._limits = limits
        self._channels: dict[str, Channel] = {}
        self._tasks: deque[Callable[[], None]] = deque()
        self._news = threading.Event()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._followers: dict[Follower, tuple[str, Selection]] = {}
        self.dropped = 0
        """The number of clients that did not read fast enough."""
        self.events = 0
        """The number of encoded events, each for one client or many."""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.call_later(BEAT, self._beat)

    def _beat(self) -> None:
        for follower in self._followers:
            follower.beat()
        if self._loop is not None and not self._closed:
            self._loop.call_later(BEAT, self._beat)

    def __len__(self) -> int:
        return len(self._followers)

    # in the event loop

    async def follow(
        self, table: Table, selection: Selection, select: Conditional | None, *, last: str | None, rows: bool
    ) -> Follower:
        """Adds a client. It gets what it has missed since the event ``last``, or with ``rows`` all rows first."""
        if len(self._followers) >= self._limits.followers:
            raise Refused(
                429, "too_many", f"{len(self._followers)} clients follow changes", hint="try again later"
            )
        loop = asyncio.get_running_loop()
        follower = Follower(self._limits.follower_bytes)
        follower.on_drop = self._dropped
        self._followers[follower] = (table.name.lower(), selection)
        joined: asyncio.Future[None] = loop.create_future()

        def join() -> None:
            try:
                first = self._join(follower, table, selection, select, last, rows)
            except Exception as error:
                loop.call_soon_threadsafe(_settle, joined, error)
            else:
                loop.call_soon_threadsafe(follower.begin, first)
                loop.call_soon_threadsafe(_settle, joined)

        try:
            self._do(join)
            await joined
        except BaseException:
            self.leave(follower)
            raise
        return follower

    def leave(self, follower: Follower) -> None:
        found = self._followers.pop(follower, None)
        if found is not None:
            self._do(lambda: self._leave(follower, *found))

    def end(self) -> None:
        """Notifies all clients that the server stops."""
        for follower in list(self._followers):
            follower.end("closing", "closing", "the server stops")

    def _dropped(self) -> None:
        self.dropped += 1
        log.warning("a client that follows changes was dropped: it does not read them fast enough")

    def _hand_out(self, deliveries: list[Delivery]) -> None:
        for followers, number, data in deliveries:
            for follower in followers:
                if number > follower.after:
                    follower.push(data)

    # in the thread

    def _do(self, task: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="millpond-changes", daemon=True)
            self._thread.start()
        self._tasks.append(task)
        self._news.set()

    def _run(self) -> None:
        looked = time.monotonic()
        while not self._closed:
            self._news.wait(self._pause())
            self._news.clear()
            try:
                while self._tasks:
                    self._tasks.popleft()()
                for channel in self._channels.values():
                    self._deliver(channel.deliveries())
                    self._deliver(channel.due())
                if time.monotonic() - looked > _LOOK:
                    looked = time.monotonic()
                    self._look_around()
            except Exception:
                log.exception("changes could not be sent to clients; they start over")
                for channel in self._channels.values():
                    self._deliver(channel.start_over("an internal error"))

    def _pause(self) -> float:
        due = [at for c in self._channels.values() if (at := c.next_due()) is not None]
        return max(0.0, min([_LOOK, *(at - time.monotonic() for at in due)]))

    def _deliver(self, deliveries: Iterable[Delivery]) -> None:
        found = list(deliveries)
        if found and self._loop is not None and not self._closed:
            self.events += len(found)
            self._loop.call_soon_threadsafe(self._hand_out, found)

    def _join(
        self,
        follower: Follower,
        table: Table,
        selection: Selection,
        select: Conditional | None,
        last: str | None,
        rows: bool,
    ) -> bytes:
        channel = self._channel(table)
        with self._store.publishing:
            number = channel.number
            # A database is not read while commits wait: what it gets in between comes again, as a change.
            view = table.backend.snapshot() if table.backend.database is None else None
        view = view or table.backend.snapshot()
        group = channel.join(follower, selection, select, view, number)
        id_ = channel.id_of(number)
        if last is not None:
            missed = channel.since(last, number, group)
            if missed is not None:
                return missed or event("ready", b"{}", id_)
            lead = reset("the missed changes are no longer stored", id_)
        else:
            lead = b"" if rows else event("ready", b"{}", id_)
        return lead + self._rows(table, selection, group.select, view, id_) if rows else lead

    def _rows(
        self, table: Table, selection: Selection, select: Conditional | None, view: Any, id_: str
    ) -> bytes:
        if select is not None:
            found = select.of(view)
        elif selection.key is not None:
            found = as_arrow(table, selection.key, view)
        else:
            found = view.scan()
        if found.num_rows > self._limits.first_rows:
            raise Refused(
                413,
                "too_many_rows",
                f"{found.num_rows:,} rows are too many for one event: the most are {self._limits.first_rows:,}",
                hint="read them in pages, then follow; or follow fewer of them by where or key",
            )
        head = encode({"columns": columns_of(found.schema)})[:-1]
        return event("rows", head + b',"rows":[' + b",".join(objects(found)) + b"]}", id_)

    def _leave(self, follower: Follower, table: str, selection: Selection) -> None:
        channel = self._channels.get(table)
        if channel is not None:
            channel.leave(follower, selection)

    def _channel(self, table: Table) -> Channel:
        name = table.name.lower()
        channel = self._channels.get(name)
        if channel is None or channel.table is not table:
            if channel is not None:
                self._let_go(name, channel, "the table was created again")
            channel = self._channels[name] = Channel(
                table, self._limits, secrets.token_hex(6), self._news.set, self._failed
            )
            self._store.watch(name, channel)
        return channel

    def _look_around(self) -> None:
        """Releases tables that were dropped or created again, or that nobody has followed for a while."""
        now = time.monotonic()
        for name, channel in list(self._channels.items()):
            idle = channel.idle_since
            if not self._stands(name, channel):
                self._let_go(name, channel, "the table was dropped or created again")
            elif idle is not None and now - idle > self._limits.history_seconds:
                self._let_go(name, channel, "")

    def _stands(self, name: str, channel: Channel) -> bool:
        relation, backend = self._catalog.find(name), self._store.table(name)
        return relation is not None and backend is not None and channel.table.stands_for(relation, backend)

    def _let_go(self, name: str, channel: Channel, why: str) -> None:
        self._store.unwatch(name, channel)
        self._deliver(channel.deliveries())
        del self._channels[name]
        followers = [f for group in channel.groups.values() for f in group.followers]
        if followers and self._loop is not None:
            self._loop.call_soon_threadsafe(_end_all, followers, "gone", "gone", why)

    def _failed(self, followers: tuple[Follower, ...], error: Error) -> None:
        self._mask_error(error)
        if self._loop is not None and not self._closed:
            self._loop.call_soon_threadsafe(_end_all, followers, "failed", error.code, error.message)

    def close(self) -> None:
        self._closed = True
        self._news.set()
        if self._thread is not None:
            self._thread.join(5.0)
        for name, channel in self._channels.items():
            self._store.unwatch(name, channel)


def _settle(future: asyncio.Future[None], error: Exception | None = None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(None)


def _end_all(followers: Iterable[Follower], kind: str, code: str, why: str) -> None:
    for follower in followers:
        follower.end(kind, code, why)
