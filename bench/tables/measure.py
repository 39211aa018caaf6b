"""Rates of functions that are measured side by side."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Work = Callable[[], int]
"""Does something and answers how often it did it."""


def calls(function: Callable[[Any], object], arguments: Sequence[Any]) -> Work:
    """Calls the function with each argument."""

    def work() -> int:
        for argument in arguments:
            function(argument)
        return len(arguments)

    return work


def best_rates(works: Iterable[Work], *, rounds: int = 5, seconds: float = 1.0) -> list[float]:
    """How often a second each is done, at its best. They take turns, so that a noisy moment harms all alike; one
    that is slow gets fewer turns."""
    works = list(works)
    best = [0.0] * len(works)
    spent = [0.0] * len(works)
    for number in range(rounds):
        for at, work in enumerate(works):
            if number and spent[at] > seconds:
                continue
            gc.collect()
            began = time.perf_counter()
            count = work()
            took = time.perf_counter() - began
            spent[at] += took
            best[at] = max(best[at], count / took)
    return best
