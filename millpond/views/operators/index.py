"""Keeps the rows of an operator that finds none by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from millpond.sql.incremental.nodes import IndexNode
from millpond.views.expressions import picker
from millpond.views.operators.base import Answered, Operator, Recompute, Round
from millpond.views.operators.memory import about, tidy
from millpond.views.rows import Delta, Row, net, rows_of

Found = dict[Row, dict[Row, int]]
"""By the values of some columns: the rows with them, and how often each is there."""


class Index(Operator):
    """Has an index for each set of columns that was asked for."""

    def __init__(self, node: IndexNode, child: Operator):
        super().__init__(node)
        self._load = node.load
        self._child = child
        self._rows: dict[Row, int] = {}
        self._found: dict[tuple[int, ...], tuple[Callable[[Row], Row], Found]] = {}
        self._changed: Delta = []

    @property
    def size(self) -> int:
        return len(self._rows) * (1 + len(self._found))

    @property
    def bytes(self) -> int:
        return about(self._rows) + sum(about(found) for _, found in self._found.values())

    def clear(self) -> None:
        self._rows, self._found, self._changed = {}, {}, []

    def load(self, answer: Answered) -> None:
        found = answer(self._load)
        self._rows, self._found, self._changed = dict(Counter(rows_of(found, found.column_names))), {}, []

    def changed(self, round_: Round) -> Delta:
        changed = self._child.changes(round_)
        _add(self._rows, changed)
        for key, found in self._found.values():
            for row, weight in changed:
                value = key(row)
                there = found.setdefault(value, {})
                _add(there, [(row, weight)])
                tidy(there)
                if not there:
                    del found[value]
        self._changed = changed
        return changed

    def rows(self, round_: Round, columns: tuple[int, ...], keys: Collection[Row], *, old: bool) -> Delta:
        if not columns:
            round_.expect(len(self._rows))
            back = [(row, -weight) for row, weight in self._changed] if old else []
            return net([*self._rows.items(), *back]) if back else list(self._rows.items())
        if columns not in self._found:
            key, found = picker(columns), Found()
            for row, times in self._rows.items():
                found.setdefault(key(row), {})[row] = times
            self._found[columns] = key, found
        key, found = self._found[columns]
        there = [item for value in keys for item in found.get(value, {}).items()]
        if not old or not self._changed:
            return there
        wanted = set(keys)
        return net([*there, *((row, -weight) for row, weight in self._changed if key(row) in wanted)])

    def end(self) -> None:
        super().end()
        tidy(self._rows)
        for _, found in self._found.values():
            tidy(found)
        self._changed = []


def _add(rows: dict[Row, int], delta: Delta) -> None:
    for row, weight in delta:
        left = rows.get(row, 0) + weight
        if left < 0:
            raise Recompute("a row has left more often than it came")
        if left:
            rows[row] = left
        else:
            del rows[row]
