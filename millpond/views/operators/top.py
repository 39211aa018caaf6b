"""Keeps the first rows in an order, and some that follow them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection
from functools import total_ordering
from operator import itemgetter
from typing import Any

from millpond.sql.incremental.nodes import SortKey, TopNode
from millpond.views.operators.base import Answered, Operator, Recompute, Round
from millpond.views.operators.memory import about
from millpond.views.rows import Delta, Row, net, rows_of

Sorted = tuple[Row, Row]
"""The place of a row in the order, and the row."""
_place = itemgetter(0)


class Top(Operator):
    """Keeps the first rows: ``_rows`` are those of the input; all of them, unless ``_more``."""

    def __init__(self, node: TopNode, child: Operator):
        super().__init__(node)
        self._top = node
        self._child = child
        self._keys = [(key.column, _sorter(key)) for key in node.keys]
        self._rows: list[Sorted] = []
        self._more = False
        self._before: list[Row] | None = None

    @property
    def size(self) -> int:
        return len(self._rows)

    @property
    def bytes(self) -> int:
        return about(self._rows)

    def clear(self) -> None:
        self._rows = []

    def load(self, answer: Answered) -> None:
        found = answer(self._top.load)
        rows = rows_of(found, found.column_names)
        self._rows = sorted(((self._at(row), row) for row in rows), key=_place)
        self._more = len(rows) >= self._top.kept

    def changed(self, round_: Round) -> Delta:
        changed = self._child.changes(round_)
        if not changed:
            return []
        before = self._before = self._shown()
        # Those that leave come first: of what remains the last is the limit of what is known.
        for row, weight in sorted(changed, key=itemgetter(1)):
            for _ in range(abs(weight)):
                (self._insert if weight > 0 else self._remove)(row)
        if len(self._rows) < self._top.limit + self._top.offset and self._more:
            raise Recompute("the rows that follow are not known")
        if len(self._rows) > 2 * self._top.kept:
            del self._rows[self._top.kept :]
            self._more = True
        return net([*((row, -1) for row in before), *((row, 1) for row in self._shown())])

    def rows(self, round_: Round, columns: tuple[int, ...], keys: Collection[Row], *, old: bool) -> Delta:
        if columns:
            raise Recompute("the first rows are not found by an index")
        shown = self._before if old and self._before is not None else self._shown()
        return [(row, 1) for row in shown]

    def end(self) -> None:
        super().end()
        self._before = None

    def _shown(self) -> list[Row]:
        top = self._top
        return [row[: top.width] for _, row in self._rows[top.offset : top.offset + top.limit]]

    def _at(self, row: Row) -> Row:
        return tuple([sort(row[column]) for column, sort in self._keys])

    def _insert(self, row: Row) -> None:
        at = self._at(row)
        if self._more and (not self._rows or not at < self._rows[-1][0]):
            return  # it is one of the rows that are not kept
        insort(self._rows, (at, row), key=_place)

    def _remove(self, row: Row) -> None:
        at = self._at(row)
        place = bisect_left(self._rows, at, key=_place)
        while place < len(self._rows) and self._rows[place][0] == at:
            if self._rows[place][1] == row:
                del self._rows[place]
                return
            place += 1
        if not self._more or (self._rows and at < self._rows[-1][0]):
            raise Recompute("a row that leaves is not there")


@total_ordering
class _Last:
    """Compares in the other direction."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Last) and bool(self.value == other.value)

    def __lt__(self, other: _Last) -> bool:
        return bool(other.value < self.value)

    def __hash__(self) -> int:
        return hash(self.value)


def _sorter(key: SortKey) -> Callable[[Any], Any]:
    """Returns a function that maps a value to what it is sorted by. NaN is greater than all numbers."""
    null = (0 if key.nulls_first else 2, 0)

    def sort(value: Any) -> Any:
        if value is None:
            return null
        number = (1, 0.0) if value != value else (0, value)
        return 1, _Last(number) if key.descending else number

    return sort
