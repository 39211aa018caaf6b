"""Random choices that are recorded, so that they can be repeated and made simpler."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Numbers below a bound, from a seed or from a record. The first option of a choice is its simplest."""

    def __init__(self, seed: int | str | None = None, record: Sequence[int] | None = None):
        self._chance = None if record is not None else random.Random(seed)
        self._left = list(reversed(record or ()))
        self.record: list[int] = []

    def below(self, bound: int) -> int:
        if self._chance is not None:
            found = self._chance.randrange(bound)
        else:
            found = min(self._left.pop() if self._left else 0, bound - 1)
        self.record.append(found)
        return found

    def percent(self, chance: int) -> bool:
        """Whether something that is so in that many of 100 cases is so; no is simpler."""
        return self.below(100) >= 100 - chance

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def some(self, options: Sequence[T], least: int = 0) -> list[T]:
        """Some of the options, in their order."""
        found = [o for o in options if self.below(2)]
        for option in options:
            if len(found) >= min(least, len(options)):
                break
            if option not in found:
                found.append(option)
        return found


def minimise(record: Sequence[int], fails: Callable[[list[int]], bool], tries: int = 400) -> list[int]:
    """The shortest and lowest record found for which ``fails`` still holds."""
    best, left = list(record), tries

    def attempt(candidate: list[int]) -> bool:
        nonlocal best, left
        if left <= 0 or candidate == best:
            return False
        left -= 1
        if fails(candidate):
            best = candidate
            return True
        return False

    changed = True
    while changed and left > 0:
        changed = False
        size = max(1, len(best) // 2)
        while size:
            at = 0
            while at < len(best) and left > 0:
                without = best[:at] + best[at + size :]
                zeroed = best[:at] + [0] * min(size, len(best) - at) + best[at + size :]
                if attempt(without):
                    changed = True
                elif any(best[at : at + size]) and attempt(zeroed):
                    changed = True
                    at += size
                else:
                    at += size
            size //= 2
    return best
