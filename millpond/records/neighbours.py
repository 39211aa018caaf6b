"""Groups what is read, or written, together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def neighbours(
    items: Iterable[T], sizes: Callable[[T], Sequence[float]], most: Sequence[float]
) -> list[list[T]]:
    """Returns neighbouring items in groups, each of which has together at most so much of every size; an item that has
    more is a group of its own.
    """
    found: list[list[T]] = []
    taken: list[float] = []
    for item in items:
        own = sizes(item)
        together = [a + b for a, b in zip(taken, own, strict=True)] if found else []
        if found and all(a <= b for a, b in zip(together, most, strict=True)):
            found[-1].append(item)
            taken = together
        else:
            found.append([item])
            taken = list(own)
    return found
