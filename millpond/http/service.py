"""What the routes share: the app, the settings, and the threads in which everything runs that may wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millpond.errors import TimedOut
from millpond.http.allowed import Allowed, Calls
from millpond.http.failures import Refused
from millpond.http.hub import Hub
from millpond.http.metrics import Requests, registry_of
from millpond.http.observing import Observer
from millpond.http.sampling import Sampler
from millpond.http.settings import Settings

if TYPE_CHECKING:
    from millpond.app.app import App

T = TypeVar("T")


_current = threading.local()


class Task(Generic[T]):
    """Work for a thread, and whether somebody still waits for it."""

    def __init__(self, work: Callable[[], T]):
        self._work = work
        self.expired = False
        self.thread: int | None = None
        """The thread that is at it."""

    def run(self) -> T:
        self.thread = threading.get_ident()
        _current.task = self
        try:
            check_waited_for()
            return self._work()
        finally:
            _current.task = self.thread = None


def check_waited_for() -> None:
    """Raises TimedOut if nobody waits any more for what this thread is about to do."""
    task = getattr(_current, "task", None)
    if task is not None and task.expired:
        raise TimedOut("not begun in time")


class Service:
    """One server of an app. The event loop only takes requests in and hands answers out: what takes longer than a
    lookup in memory runs in a thread, at most ``limits.threads`` at a time."""

    def __init__(self, app: App, settings: Settings):
        self.app = app
        self.settings = settings
        self.limits = settings.limits
        self.allowed = Allowed(settings.allow)
        self.calls = Calls(app._functions)
        self._pool = ThreadPoolExecutor(settings.limits.threads, thread_name_prefix="millpond-http")
        self._at_work = 0
        self.hub = Hub(app, settings.limits)
        self.observer = Observer(app)
        self.sampler = Sampler(self.observer)
        self.registry = registry_of(self)
        self.requests = Requests(self.registry)

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """The answer of ``work``, which runs in a thread. Raises Refused if too many wait, TimedOut if it takes too
        long: then a query that DuckDB is at is ended, and what has not begun is not begun; all else goes on, and keeps
        its place until it is done."""
        if self._at_work >= self.limits.waiting:
            raise Refused(503, "busy", f"{self._at_work} requests run or wait", hint="try again in a moment")
        self._at_work += 1
        task = Task(partial(work, *given))
        future = asyncio.get_running_loop().run_in_executor(self._pool, task.run)
        future.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.shield(future), self.limits.seconds)
        except TimeoutError:
            task.expired = True
            if task.thread is not None:
                self.app._evaluator.interrupt(task.thread)
            raise TimedOut(
                f"not answered within {self.limits.seconds:g} s",
                hint="ask for less, or keep the answer in a live table",
            ) from None

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._at_work -= 1
        if not future.cancelled():
            future.exception()  # whoever waited has it, or has gone

    async def in_thread(self, work: Callable[..., T], *given: Any) -> T:
        """A piece of an answer that is being sent."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *given)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called in the loop before the first request."""
        self.hub.begin(loop)

    async def end(self) -> None:
        """Called in the loop when the server stops, while answers are still being sent."""
        self.hub.end()

    def close(self) -> None:
        self.hub.close()
        self.sampler.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
