"""Leaves a part of the machine to others while a table is built beside the one that they use."""

from __future__ import annotations

from collections.abc import Callable

_REST = 0.75
"""The time of rest in relation to that of work. A range is evaluated with all cores that it can get: others have about
half of their throughput meanwhile, and all of it during the rest."""


class Courtesy:
    """Says how long a statement rests after a range of rows. ``others`` counts the batches of other statements: while
    they have none, it does not rest.
    """

    def __init__(self, others: Callable[[], int]):
        self._others = others
        self._seen = others()

    def rest(self, seconds: float) -> float:
        """Returns the seconds to rest after so many seconds of work."""
        before, self._seen = self._seen, self._others()
        return seconds * _REST if self._seen != before else 0.0
