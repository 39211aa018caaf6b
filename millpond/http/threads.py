"""Runs requests in threads, so that the event loop waits for nothing and no request waits for long ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from millpond.allowance import Allowance, given
from millpond.http.failures import Refused
from millpond.http.settings import Limits

T = TypeVar("T")
SEAT_SECONDS = 0.25
"""How long a request keeps its slot. A longer one continues, and lets the next one start."""
AGAIN_SECONDS = 0.25
"""The interval at which unfinished work is asked to end again: it may have started after the first time."""


class Threads:
    """Starts at most ``limits.threads`` requests at a time, of at most ``limits.waiting`` in all. Each has an
    allowance: what exceeds it is ended.
    """

    def __init__(self, limits: Limits):
        self._limits = limits
        self._pool = ThreadPoolExecutor(limits.waiting + 2, thread_name_prefix="millpond-http")
        self._enders = ThreadPoolExecutor(2, thread_name_prefix="millpond-http-end")
        self._seats = asyncio.Semaphore(limits.threads)
        self.at_work = 0
        self._closed = False

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Returns the result of ``work``, which runs in a thread. Raises Refused if too many wait, TimedOut if it takes
        too long: then a query is ended, and what has not started does not start; a commit that has started continues.
        """
        if self.at_work >= self._limits.waiting:
            raise Refused(503, "busy", f"{self.at_work} requests run or wait", hint="try again in a moment")
        limits = self._limits
        allowance = Allowance(limits.seconds, rows=limits.answer_rows, bytes=limits.answer_bytes)
        self.at_work += 1
        try:
            await _until(allowance, self._seats.acquire())
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._pool, _do, allowance, partial(work, *arguments))
        except BaseException:
            self.at_work -= 1
            raise
        future.add_done_callback(self._done)
        seat = _Seat(self._seats)
        future.add_done_callback(seat.leave)
        loop.call_later(SEAT_SECONDS, seat.leave)
        try:
            answer: T = await _until(allowance, asyncio.shield(future))
            return answer
        finally:
            self._end(allowance, future)

    def _end(self, allowance: Allowance, future: asyncio.Future[Any]) -> None:
        """Ends work that nobody waits for, until it is done."""
        if not future.done() and not self._closed:
            loop = asyncio.get_running_loop()
            loop.run_in_executor(self._enders, allowance.end)
            loop.call_later(AGAIN_SECONDS, self._end, allowance, future)

    def _done(self, future: asyncio.Future[Any]) -> None:
        self.at_work -= 1
        if not future.cancelled():
            future.exception()  # the waiter has it, or has gone

    async def piece(self, work: Callable[..., T], *arguments: Any) -> T:
        """Returns a piece of a response that is being sent."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._enders.shutdown(wait=False, cancel_futures=True)


class _Seat:
    """Releases a slot of a thread once."""

    def __init__(self, seats: asyncio.Semaphore):
        self._seats: asyncio.Semaphore | None = seats

    def leave(self, _: object = None) -> None:
        if self._seats is not None:
            self._seats.release()
            self._seats = None


async def _until(allowance: Allowance, waited_for: Any) -> Any:
    """Waits and returns the result. Raises TimedOut when the allowance ends before."""
    try:
        return await asyncio.wait_for(waited_for, allowance.left)
    except TimeoutError:
        allowance.end()
        allowance.check()
        raise


def _do(allowance: Allowance, work: Callable[[], T]) -> T:
    with given(allowance):
        allowance.check()
        return work()
