"""Keeps INTERSECT and EXCEPT: how often each row occurs on both sides."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from millpond.sql.incremental.nodes import SetNode
from millpond.views.operators.base import Answered, Operator, Recompute, Round
from millpond.views.operators.memory import about, tidy
from millpond.views.rows import Delta, Row, by_key


class SetOperation(Operator):
    """Keeps a set operation: ``_counts`` has for each row how often it occurs on the left and on the right side."""

    def __init__(self, node: SetNode, sides: Sequence[Operator]):
        super().__init__(node)
        self._set = node
        self._sides = sides
        self._counts: dict[Row, list[int]] = {}

    @property
    def size(self) -> int:
        return len(self._counts)

    @property
    def bytes(self) -> int:
        return about(self._counts)

    def clear(self) -> None:
        self._counts = {}

    def load(self, answer: Answered) -> None:
        self._counts = {}
        for at, query in enumerate(self._set.loads):
            found = answer(query)
            for row, (count,) in by_key(found, found.num_columns - 1):
                self._counts.setdefault(row, [0, 0])[at] = count

    def changed(self, round_: Round) -> Delta:
        before: dict[Row, int] = {}
        for at, side in enumerate(self._sides):
            for row, weight in side.changes(round_):
                counts = self._counts.setdefault(row, [0, 0])
                before.setdefault(row, self._shown(counts))
                counts[at] += weight
        delta: Delta = []
        for row, old in before.items():
            counts = self._counts[row]
            if min(counts) < 0:
                raise Recompute("a row has left more often than it came")
            change = self._shown(counts) - old
            if change:
                delta.append((row, change))
            if not any(counts):
                del self._counts[row]
        tidy(self._counts)
        return delta

    def rows(self, round_: Round, columns: tuple[int, ...], keys: Collection[Row], *, old: bool) -> Delta:
        raise Recompute("the rows of a set operation are not found by an index")

    def _shown(self, counts: list[int]) -> int:
        left, right = counts
        if not self._set.every:
            return int(left > 0 and (right > 0) is (self._set.kind == "intersect"))
        return min(left, right) if self._set.kind == "intersect" else max(0, left - right)
