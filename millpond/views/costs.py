"""Estimates what each way to keep a view takes, and learns it from the last runs of each."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_LAST = 3
_FACTOR = 4.0
"""How many times as much or as little as was expected is believed."""
_FADES = 0.95
"""What stays of a factor each time that another way is taken."""
_ENOUGH = 500
"""Rows of a run of operators from which is learned what a row takes."""

_ROW = 4.0
"""Microseconds that operators need for a row that they read."""
_QUERY, _INPUT, _OUTPUT = 10_000.0, 0.03, 1.0
"""Microseconds of a recomputation: at least, for each row of the inputs, and for each row that is compared."""
_FOUND = 0.1
"""Microseconds of a recomputation of parts, for each row that an index finds."""
_WORTH = 1.2
"""How many times as much as operators a recomputation must take, so that their state is set again after one."""


class Watch:
    """Measures what something takes from now on: the lesser of the time that has passed and of the processor time of
    the app. The first is longer while others use the processors, the second if threads share the work.
    """

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    @property
    def seconds(self) -> float:
        return max(1e-9, min(time.perf_counter() - self._wall, time.process_time() - self._processor))


class Learned:
    """Contains how many times as much as expected a way takes: the least of its last runs, because any of them may have
    waited for others.
    """

    def __init__(self, like: Learned | None = None) -> None:
        self._like = like
        self._last: deque[float] = deque(maxlen=_LAST)

    @property
    def factor(self) -> float:
        """Returns the factor; before the first run that of another way."""
        unknown = 1.0 if self._like is None else self._like.factor
        return min(self._last, default=unknown)

    def learn(self, microseconds: float, expected: float) -> None:
        self._last.append(min(_FACTOR, max(1 / _FACTOR, microseconds / expected)))

    def fade(self) -> None:
        """Forgets some of a high factor: a way that once took long is tried again in the end."""
        if self.factor > 1.0 and self._last:
            self._last.append(max(1.0, self.factor * _FADES))


class Costs:
    """Says what the ways to keep one view take, in microseconds."""

    def __init__(self) -> None:
        self._operators, self._whole = Learned(), Learned()
        self._parts = Learned(like=self._whole)
        self._read: dict[frozenset[str], deque[float]] = {}
        """By the tables that change: how many rows operators read for each that changes."""
        self._found: dict[frozenset[str], float] = {}
        """By the tables that change: which share of as many parts as could be touched was."""

    def whole(self, inputs: int, own: int) -> float:
        """Returns what it takes to evaluate the query over so many rows, and to compare with those that are there."""
        return (_QUERY + _INPUT * inputs + _OUTPUT * own) * self._whole.factor

    def parts(self, found: float, own: float) -> float:
        """Returns what it takes to evaluate the query over so many rows that an index finds, and to compare."""
        return (_QUERY + _FOUND * found + _OUTPUT * own) * self._parts.factor

    def found(self, tables: frozenset[str], most: int) -> float:
        """Returns how many parts of so many, that changed rows can touch, they are likely to touch. It is less each
        time that they are not looked for.
        """
        share = self._found[tables] = self._found.get(tables, 0.0) * _FADES
        return most * share

    def learn_found(self, tables: frozenset[str], most: int, found: int) -> None:
        """Learns how many parts changed rows of these tables have touched."""
        self._found[tables] = found / max(1, most)

    def worth_loading(self, read: float, most: int) -> bool:
        """Returns whether operators, which can read so many rows in the time of a recomputation, are so much faster
        that their state is worth it: a choice that goes to and fro costs more than either way.
        """
        return read * _WORTH <= most

    def rows_for(self, microseconds: float) -> int:
        """Returns how many rows operators read in this time."""
        return int(microseconds / (_ROW * self._operators.factor))

    def read(self, tables: frozenset[str], changed: int) -> float:
        """Returns how many rows operators read at least for so many changed rows of these tables."""
        return changed * max(1.0, min(self._read.get(tables, ()), default=1.0))

    def learn_read(self, tables: frozenset[str], changed: int, read: int, seconds: float) -> None:
        """Learns from a run of the operators."""
        if changed:
            self._read.setdefault(tables, deque(maxlen=_LAST)).append(read / changed)
        if read >= _ENOUGH:
            self._operators.learn(seconds * 1e6, _ROW * read)
            self._whole.fade()

    @contextmanager
    def learn_whole(self, inputs: int, own: int) -> Iterator[None]:
        """Learns from an evaluation of the query inside."""
        watch = Watch()
        yield
        self._whole.learn(watch.seconds * 1e6, _QUERY + _INPUT * inputs + _OUTPUT * own)
        self._fade_operators()

    @contextmanager
    def learn_parts(self, found: float, own: float) -> Iterator[None]:
        """Learns from an evaluation of parts inside."""
        watch = Watch()
        yield
        self._parts.learn(watch.seconds * 1e6, _QUERY + _FOUND * found + _OUTPUT * own)
        self._fade_operators()

    def _fade_operators(self) -> None:
        self._operators.fade()
        for last in self._read.values():
            last.append(min(last) * _FADES)
