"""Keeps how often each row occurs, and passes when the first comes and the last goes."""

from __future__ import annotations

from collections.abc import Collection

from millpond.sql.incremental.nodes import DistinctNode
from millpond.views.expressions import picker
from millpond.views.operators.base import Answered, Operator, Recompute, Round
from millpond.views.operators.memory import about, tidy
from millpond.views.rows import Delta, Row, rows_of


class Distinct(Operator):
    def __init__(self, node: DistinctNode, child: Operator):
        super().__init__(node)
        self._load = node.load
        self._child = child
        self._counts: dict[Row, int] = {}
        self._before: dict[Row, int] = {}

    @property
    def size(self) -> int:
        return len(self._counts)

    @property
    def bytes(self) -> int:
        return about(self._counts)

    def clear(self) -> None:
        self._counts = {}

    def load(self, answer: Answered) -> None:
        found = answer(self._load)
        rows = rows_of(found, found.column_names[:-1])
        self._counts = dict(zip(rows, found.column(found.num_columns - 1).to_pylist(), strict=True))

    def changed(self, round_: Round) -> Delta:
        delta: Delta = []
        counts = self._counts
        before: dict[Row, int] = {}
        for row, weight in self._child.changes(round_):
            there = counts.get(row, 0)
            before.setdefault(row, there)
            counts[row] = there + weight
        for row, old in before.items():
            new = counts[row]
            if new < 0:
                raise Recompute("a row has left more often than it came")
            if not new:
                del counts[row]
            if bool(old) != bool(new):
                delta.append((row, 1 if new else -1))
        self._before = before
        return delta

    def rows(self, round_: Round, columns: tuple[int, ...], keys: Collection[Row], *, old: bool) -> Delta:
        if not columns:
            round_.expect(len(self._counts))
            keys, columns = {*self._counts, *self._before}, tuple(range(len(self._node.types)))
        order = picker([columns.index(c) for c in range(len(columns))])
        wanted = [order(key) for key in keys]
        if old:
            return [(row, 1) for row in wanted if self._before.get(row, self._counts.get(row))]
        return [(row, 1) for row in wanted if row in self._counts]

    def end(self) -> None:
        super().end()
        tidy(self._counts)
        self._before = {}
