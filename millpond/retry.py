"""One way to try again: with growing pauses, for as long as it is worth it. Each retry is one line in the log."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from millpond.errors import Error

T = TypeVar("T")
log = logging.getLogger("millpond")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0


def retried(work: Callable[[], T], *, on: tuple[type[Error], ...], timeout: float) -> T:
    """What ``work`` answers. One of the errors ``on`` is raised only when ``timeout`` seconds are over; every other
    one at once."""
    try:
        return work()
    except on as error:
        if timeout <= 0:
            raise
        log.warning("%s; trying again", error.message)
    from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

    def note(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        pause = state.next_action.sleep if state.next_action is not None else 0.0
        message = error.message if isinstance(error, Error) else str(error)
        log.warning("%s; trying again in %.2f s (attempt %d)", message, pause, state.attempt_number)

    trying = Retrying(
        stop=stop_after_delay(timeout),
        wait=wait_exponential(multiplier=FIRST_PAUSE, max=LONGEST_PAUSE),
        retry=retry_if_exception_type(on),
        before_sleep=note,
        reraise=True,
    )
    return trying(work)


Strategy = Literal["exponential", "linear", "fixed"]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for something, and how often to look: the n-th pause, from 0, grows by its strategy."""

    timeout: float
    interval: float = 2.0
    strategy: Strategy = "exponential"
    multiplier: float = 1.5
    longest: float = 120.0

    def pause(self, number: int) -> float:
        match self.strategy:
            case "fixed":
                pause = self.interval
            case "linear":
                pause = self.interval * (number + 1)
            case _:
                pause = self.interval * self.multiplier**number
        return min(pause, self.longest)

    def wait_for(
        self,
        work: Callable[[], T],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> T:
        """What ``work`` answers. An error that may pass is raised when the time is over, every other one at once."""
        began = clock()
        for number in itertools.count():
            try:
                return work()
            except Error as error:
                left = self.timeout - (clock() - began)
                if not error.retryable or left <= 0:
                    raise
                pause = min(self.pause(number), left)
                log.warning(
                    "%s; trying again in %g s (attempt %d)", error.message, round(pause, 3), number + 1
                )
                sleep(pause)
        raise AssertionError
