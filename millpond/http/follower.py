"""Sends events to a client that follows changes, from a bounded queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from millpond.http.responses import EVENTS, encode

BEAT = 15.0
"""Seconds without an event after which a client gets a comment: it shows both sides that the other is there."""
PATIENCE = 1.0
"""Seconds that a client may take to read before waiting events count against it."""
AT_ONCE = 8
"""The multiple of the allowed bytes that may wait in any case."""
LAST_WORD = 5.0
"""Seconds that a client which is dropped has to read the reason."""


def event(kind: str, data: bytes, id_: str | None = None) -> bytes:
    """Returns an event in the form in which it is sent. The data is JSON and has no line breaks."""
    head = b"" if id_ is None else b"id: %b\n" % id_.encode()
    return b"%bevent: %b\ndata: %b\n\n" % (head, kind.encode(), data)


class Follower:
    """Queues events until they are sent. All methods except the constructor are called in the event loop."""

    def __init__(self, most: int):
        self._most = most
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._sending: float | None = None
        self.abort: Callable[[], None] = lambda: None
        self.after = -1
        """The last change that the client has, or must not get."""
        self.done = False
        self.on_drop: Callable[[], None] = lambda: None

    def begin(self, data: bytes) -> None:
        """Queues the first event, however large it is."""
        self._waiting.append(data)
        self.wake()

    def push(self, data: bytes) -> None:
        """Queues an event. A client with too many waiting events gets the reason, and is dropped."""
        if self.done:
            return
        self._bytes += len(data)
        if self._bytes > self._most and (self._stuck() or self._bytes > AT_ONCE * self._most):
            self.end("dropped", "too_slow", f"more than {self._most:,} bytes of events waited to be read")
            self.on_drop()
            return
        self._waiting.append(data)
        self._news.set()

    def _stuck(self) -> bool:
        """Returns whether the client has not read what was sent for a while; a burst of events is not its fault."""
        since = self._sending
        return since is not None and asyncio.get_running_loop().time() - since > PATIENCE

    async def sent(self, sending: Awaitable[None]) -> None:
        """Waits until the client can receive what is sent."""
        self._sending = asyncio.get_running_loop().time()
        await sending
        self._sending = None

    def beat(self) -> None:
        """Shows a client that has received nothing for a while that the server is there."""
        if not self._waiting and not self.done:
            self._waiting.append(b": still here\n\n")
            self._news.set()

    def wake(self) -> None:
        self._news.set()

    def end(self, kind: str, code: str, message: str) -> None:
        """Ends the stream with one event that says why."""
        if self.done:
            return
        self.done = True
        self._waiting.clear()
        hint = "come back with Last-Event-ID, and read faster" if code == "too_slow" else "come back later"
        self._waiting.append(event(kind, encode({"code": code, "message": message, "hint": hint})))
        self._news.set()
        asyncio.get_running_loop().call_later(LAST_WORD, self.abort)

    async def take(self) -> bytes:
        """Waits for events and returns all of them; returns nothing if it was only woken."""
        if not self._waiting:
            self._news.clear()
            await self._news.wait()
        found, self._bytes = b"".join(self._waiting), 0
        self._waiting.clear()
        return found


class EventStream(Response):
    """Sends the events of a follower until it is done or its client disconnects; then calls ``leave``."""

    media_type = EVENTS

    def __init__(self, follower: Follower, leave: Callable[[], Any]):
        super().__init__()
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-store"
        self.headers["connection"] = "close"
        self.headers["x-accel-buffering"] = "no"
        self._follower = follower
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        follower = self._follower
        follower.abort = scope.get("millpond.abort", follower.abort)
        gone = asyncio.create_task(_gone(receive))
        gone.add_done_callback(lambda _: follower.wake())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while not gone.done():
                data = await follower.take()
                last = follower.done
                if data:
                    await follower.sent(send({"type": "http.response.body", "body": data, "more_body": True}))
                if last:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                    return
        finally:
            gone.cancel()
            follower.done = True
            self._leave()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
