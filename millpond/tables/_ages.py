"""Remembers when the rows of a memory table were last changed.

Slots are numbered in the order of their creation, and a row that changes gets a new slot. So times and the number of
slots made until then are enough; the time of a row costs next to nothing.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from millpond.changes import AT, Changes
from millpond.tables.ttl import goes_by_changes

_PARTS, _PARTS_OF_A_RESTORE = 20_000, 500
"""In how many parts the time that a row stays is divided. Rows of one part have the time of its last one."""


class Time:
    """Returns the time of a change: now, or, while a table is restored, the time that was ``stored`` with it."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = time.time
        self.stored: float | None = None

    def of_change(self) -> float:
        return self.now() if self.stored is None else self.stored


class Ages:
    """Contains times, and how many slots were made until each."""

    def __init__(self, ttl: float, time: Time):
        self.ttl = ttl
        self.time = time
        self._began = -np.inf
        self._times: list[float] = []
        self._ends: list[int] = []

    def note(self, end: int) -> None:
        """Records that slots up to ``end`` are made."""
        time = self.time.of_change()
        if self._times and time - self._began < self.ttl / _PARTS:
            self._times[-1] = max(self._times[-1], time)
            self._ends[-1] = end
        else:
            self._began = time
            self._times.append(max(time, self._times[-1]) if self._times else time)
            self._ends.append(end)

    def made_before(self, time: float) -> int:
        """Returns how many slots were made before a time."""
        at = bisect_left(self._times, time)
        return self._ends[at - 1] if at else 0

    def of(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Returns the times of slots."""
        ends, times = np.array(self._ends, np.int64), np.array(self._times, np.float64)
        at = np.minimum(np.searchsorted(ends, slots, side="right"), max(0, len(ends) - 1))
        return times[at]

    def moved(self, keep: npt.NDArray[np.bool_]) -> Ages:
        """Returns the times of the remaining slots, numbered again."""
        kept_before = np.concatenate(([0], np.cumsum(keep)))
        times: list[float] = []
        ends: list[int] = []
        for at, end in zip(self._times, self._ends, strict=True):
            count = int(kept_before[min(end, len(keep))])
            if count > (ends[-1] if ends else 0):
                times.append(at)
                ends.append(count)
        made = Ages(self.ttl, self.time)
        made.take(times, ends)
        return made

    def take(self, times: list[float], ends: list[int]) -> None:
        """Sets the times, and how many slots were made until each."""
        self._times, self._ends = times, ends


def ages_of(values: Mapping[str, Any]) -> Ages | None:
    """Returns what remembers the times of rows, if the options of a table need them."""
    return Ages(values["ttl"], Time()) if goes_by_changes(values) else None


def at_their_times(changes: Changes, ages: Ages | None) -> Iterator[Changes]:
    """Yields changes that a journal has stored, in order, those of about the same time together: what is applied is
    noted with that time.
    """
    if AT not in changes.rows.column_names:
        yield changes
        return
    times, rows = changes.rows[AT].to_numpy(), changes.rows.drop_columns([AT])
    if ages is None:
        yield Changes(rows, changes.deleted)
        return
    given = ages.time
    cuts = np.flatnonzero(np.diff(times // (ages.ttl / _PARTS_OF_A_RESTORE))) + 1
    try:
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(times)], strict=True):
            given.stored = float(times[start:end].max(initial=0.0))
            gone = None if changes.deleted is None else changes.deleted.slice(start, end - start)
            yield Changes(rows.slice(start, end - start), gone)
    finally:
        given.stored = None
