"""Defines what an operator of a view does, and the round in which it does it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa

from millpond.sql.incremental.lookup_columns import found_by
from millpond.sql.incremental.nodes import Node
from millpond.sql.resolve import Resolved
from millpond.store.change_feed import Touched
from millpond.tables.base import Snapshot
from millpond.views.expressions import picker
from millpond.views.rows import Delta, Row, rows_of

Answered = Callable[[Resolved], pa.Table]


class Recompute(Exception):
    """Says that the whole query must be evaluated: it is cheaper, or the changes are not known."""


class ManyRows(Recompute):
    """Says that operators would read too many rows. ``found`` are those of one table that were found by keys, with its
    view in the query.
    """

    def __init__(self, why: str, found: tuple[str, pa.Table] | None = None):
        super().__init__(why)
        self.found = found


class Round:
    """Contains the tables before and after a change, and counts the rows that operators read.

    Raises Recompute when these are more than ``most``.
    """

    def __init__(
        self,
        before: Mapping[str, Snapshot],
        now: Callable[[str], Snapshot],
        touched: Mapping[str, Touched],
        most: int,
    ):
        self._before = before
        self._now = now
        self._touched = touched
        self._most = most
        self.read = 0

    def snapshot(self, table: str, *, old: bool) -> Snapshot:
        return self._before[table.lower()] if old else self._now(table)

    def changes(self, table: str, names: Sequence[str]) -> Delta:
        """Returns the rows that left a table, and those that came."""
        change = self._touched.get(table.lower())
        if change is None:
            return []
        before = self._before.get(table.lower())
        found = None if before is None else change.between(before, self._now(table))
        if found is None:
            raise Recompute(f"the changed rows of table {table} are not known")
        gone, came = found
        self.count(gone.num_rows + came.num_rows)
        return [*((row, -1) for row in rows_of(gone, names)), *((row, 1) for row in rows_of(came, names))]

    def count(self, rows: int) -> None:
        """Counts rows that an operator reads."""
        self.expect(rows)
        self.read += rows

    def expect(self, rows: int, found: tuple[str, pa.Table] | None = None) -> None:
        """Raises ManyRows if an operator would read too many rows."""
        if self.read + rows > self._most:
            raise ManyRows("many rows change", found)


class Operator(ABC):
    """Turns changes of inputs into changes of rows."""

    def __init__(self, node: Node):
        self._node = node
        self._last: tuple[Round, Delta] | None = None

    def changes(self, round_: Round) -> Delta:
        """Returns the changes of the rows in this round; before ``find``. Several operators may read one."""
        if self._last is None or self._last[0] is not round_:
            self._last = round_, self.changed(round_)
        return self._last[1]

    @abstractmethod
    def changed(self, round_: Round) -> Delta:
        """Applies the changes of a round to the state, and returns those of the rows."""

    @abstractmethod
    def rows(self, round_: Round, columns: tuple[int, ...], keys: Collection[Row], *, old: bool) -> Delta:
        """Returns the rows whose columns equal one of the keys, where NULL equals NULL, before the round or now. The
        operator finds rows by all of these columns; without columns it returns all rows.
        """

    def find(self, round_: Round, columns: tuple[int, ...], keys: Collection[Row], *, old: bool) -> Delta:
        """Works as ``rows``, for columns of which the operator finds rows by some."""
        if not keys:
            return []
        some = found_by(self._node, columns)
        if some == columns:
            found = self.rows(round_, columns, keys, old=old)
        else:
            pick, own = picker([columns.index(c) for c in some]), picker(columns)
            wanted = keys if isinstance(keys, set | frozenset | dict) else set(keys)
            there = self.rows(round_, some, {pick(key) for key in keys}, old=old)
            found = [(row, weight) for row, weight in there if own(row) in wanted]
        round_.count(len(found))
        return found

    def load(self, answer: Answered) -> None:
        """Sets the state from the inputs; ``answer`` evaluates a query of it."""
        return None

    def clear(self) -> None:
        """Frees the state, until ``load`` sets it again."""
        return None

    def end(self) -> None:
        """Ends a round: what was before it is not needed any more."""
        self._last = None

    @property
    def size(self) -> int:
        """Returns how many entries its state has: groups, rows, and the values of groups."""
        return 0

    @property
    def bytes(self) -> int:
        """Returns about how many bytes its state takes."""
        return 0
