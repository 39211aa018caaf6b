"""Retries work with growing pauses, for as long as it is worth it. Each retry is one line in the log."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from millpond.errors import Error

T = TypeVar("T")
log = logging.getLogger("millpond")

Strategy = Literal["exponential", "linear", "fixed"]


class Issues:
    """Counts retries by the code of the error: how often, how often they helped, how often they were given up."""

    def __init__(self) -> None:
        self._retries: Counter[str] = Counter()
        self._successes: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()

    def retry(self, error: Error) -> None:
        self._retries[error.code] += 1

    def success(self, error: Error) -> None:
        """Counts a retry after this error that succeeded."""
        self._successes[error.code] += 1

    def failure(self, error: Error) -> None:
        """Counts an error that is not retried, or not any longer."""
        self._failures[error.code] += 1

    def __add__(self, other: Issues) -> Issues:
        both = Issues()
        both._retries = self._retries + other._retries
        both._successes = self._successes + other._successes
        both._failures = self._failures + other._failures
        return both

    @property
    def retries(self) -> int:
        return sum(self._retries.values())

    def __str__(self) -> str:
        """Returns it in words: ``topic_missing: 3 retries, 1 success, 0 failures``."""
        parts = []
        for code in sorted({*self._retries, *self._failures}):
            counted = (self._retries[code], self._successes[code], self._failures[code])
            words = zip(counted, ("retries", "successes", "failures"), strict=True)
            parts.append(f"{code}: {', '.join(f'{n} {word}' for n, word in words)}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Patience:
    """Describes how long to wait for something, and how often to try: the n-th pause, from 0, grows by its strategy."""

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
                # A long wait has many tries: the power must not exceed what a float can represent.
                pause = self.interval * self.multiplier ** min(number, 64)
        return min(pause, self.longest)

    def wait_for(
        self,
        work: Callable[[], T],
        *,
        on: tuple[type[Error], ...] = (),
        issues: Issues | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> T:
        """Returns the result of ``work``. An error that may be temporary, or is one of ``on``, is raised when the time
        is over, or would be over after the pause that the other side requests; every other one at once.
        """
        began = clock()
        last: Error | None = None
        for number in itertools.count():
            try:
                done = work()
            except Error as error:
                left = self.timeout - (clock() - began)
                if not (isinstance(error, on) if on else error.retryable) or left <= error.after:
                    if issues is not None:
                        issues.failure(error)
                    raise
                last = error
            else:
                if last is not None and issues is not None:
                    issues.success(last)
                return done
            if issues is not None:
                issues.retry(last)
            pause = max(min(self.pause(number), left), last.after)
            log.warning("%s; trying again in %g s (attempt %d)", last.message, round(pause, 3), number + 1)
            sleep(pause)
        raise AssertionError


AGAIN = Patience(math.inf, 0.5, "exponential", 2.0, 30.0)
"""How running statements are retried."""
NO_PATIENCE = Patience(0.0)


def for_connections(timeout: float) -> Patience:
    """Returns how to retry after a lost connection."""
    return Patience(timeout, 0.05, "exponential", 2.0, 2.0)
