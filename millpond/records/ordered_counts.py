"""Finds the value at a place among values in order, each of which occurs so many times, while they come and go.

The different values are in blocks, in order: a change moves the values of one block, and a search passes the blocks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

_BLOCK = 512
"""Values of a block that is made; with twice as many it becomes two."""


class OrderedCounts:
    """Keeps the order of values; ``counts``, which its owner changes, says how often each occurs."""

    def __init__(self, counts: Mapping[Any, int]):
        self._counts = counts
        values = sorted(counts)
        self._blocks = [values[at : at + _BLOCK] for at in range(0, len(values), _BLOCK)]
        self._lasts = [block[-1] for block in self._blocks]
        self._totals = [sum(map(counts.__getitem__, block)) for block in self._blocks]

    def changed(self, value: Any, times: int, *, came: bool, went: bool) -> None:
        """Follows a change of the counts: a value occurs so many times more."""
        if not self._blocks:
            self._blocks, self._lasts, self._totals = [[value]], [value], [times]
            return
        at = min(bisect_left(self._lasts, value), len(self._blocks) - 1)
        block = self._blocks[at]
        self._totals[at] += times
        place = bisect_left(block, value)
        if came:
            block.insert(place, value)
        elif went:
            del block[place]
        if not block:
            del self._blocks[at], self._lasts[at], self._totals[at]
            return
        self._lasts[at] = block[-1]
        if len(block) > 2 * _BLOCK:
            parts = [block[:_BLOCK], block[_BLOCK:]]
            self._blocks[at : at + 1] = parts
            self._lasts[at : at + 1] = [part[-1] for part in parts]
            self._totals[at : at + 1] = [sum(map(self._counts.__getitem__, part)) for part in parts]

    def at(self, place: int) -> Any:
        """Returns the value at a place, counted from 0, below the number of all."""
        for block, total in zip(self._blocks, self._totals, strict=True):
            if place < total:
                for value in block:
                    place -= self._counts[value]
                    if place < 0:
                        return value
            place -= total
        raise IndexError(place)
