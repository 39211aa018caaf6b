"""Keeps joins: a change of one side finds the rows of the other by index."""

from __future__ import annotations

from collections.abc import Callable, Collection

from millpond.query.evaluate import Evaluator
from millpond.sql.incremental.nodes import JoinNode
from millpond.views.expressions import Computed, picker
from millpond.views.operators.base import Operator, Recompute, Round
from millpond.views.rows import Delta, Row, net

Matches = dict[Row, Delta]
"""Rows by the values of the columns that are compared."""


class Join(Operator):
    def __init__(self, node: JoinNode, left: Operator, right: Operator, evaluator: Evaluator):
        super().__init__(node)
        self._join = node
        self._left, self._right = left, right
        self._left_columns = tuple(a for a, _ in node.pairs)
        self._right_columns = tuple(b for _, b in node.pairs)
        self._left_key, self._right_key = picker(self._left_columns), picker(self._right_columns)
        self._width = len(node.left.types)
        self._missing: Row = (None,) * len(node.right.types)
        both = (*node.left.types, *node.right.types)
        self._residual = None if node.residual is None else Computed(node.residual, both, evaluator)

    def changed(self, round_: Round) -> Delta:
        left, right = self._left.changes(round_), self._right.changes(round_)
        delta = self._extended(round_, left, old=False)
        if right:
            self._check_alone(round_)
            keys = _keys(right, self._right_key)
            there = self._left.find(round_, self._left_columns, keys, old=True)
            if self._join.kind == "inner":
                delta += self._combined(round_, there, _by_key(right, self._right_key))
            else:
                delta += [(row, -weight) for row, weight in self._extended(round_, there, old=True)]
                delta += self._extended(round_, there, old=False)
        return net(delta)

    def _check_alone(self, round_: Round) -> None:
        """Raises Recompute if a subquery that reads nothing around it has several rows, also if nobody reads them."""
        if self._join.single and not self._join.pairs:
            if sum(weight for _, weight in self._right.find(round_, (), {()}, old=False)) > 1:
                raise Recompute("a subquery returns more than one row")

    def rows(self, round_: Round, columns: tuple[int, ...], keys: Collection[Row], *, old: bool) -> Delta:
        if all(c < self._width for c in columns):
            return self._extended(round_, self._left.find(round_, columns, keys, old=old), old=old)
        below = tuple(c - self._width for c in columns)
        right = self._right.find(round_, below, keys, old=old)
        left = self._left.find(round_, self._left_columns, _keys(right, self._right_key), old=old)
        return self._combined(round_, left, _by_key(right, self._right_key))

    def _extended(self, round_: Round, left: Delta, *, old: bool) -> Delta:
        """Returns what rows of the left side become, with all rows of the right side."""
        if not left:
            return []
        right = self._right.find(round_, self._right_columns, _keys(left, self._left_key), old=old)
        return self._combined(round_, left, _by_key(right, self._right_key))

    def _combined(self, round_: Round, left: Delta, right: Matches) -> Delta:
        kind, key = self._join.kind, self._left_key
        if not self._join.pairs:
            round_.count(len(left) * len(right.get((), ())))
        pairs: Delta = []
        owners: list[int] = []
        for at, (row, weight) in enumerate(left):
            for other, times in right.get(key(row), ()):
                pairs.append((row + other, weight * times))
                owners.append(at)
        if self._residual is None:
            matched = set(owners) if kind != "inner" else set()
        else:
            # The place of a pair stands for its weight, so that those that remain are known.
            remaining = [at for _, at in self._residual.apply([(row, n) for n, (row, _) in enumerate(pairs)])]
            pairs, matched = [pairs[n] for n in remaining], {owners[n] for n in remaining}
            owners = [owners[n] for n in remaining]
        if self._join.single:
            often = any(abs(w) > abs(left[at][1]) for (_, w), at in zip(pairs, owners, strict=True))
            if often or len(matched) < len(owners):
                raise Recompute("a subquery returns more than one row")
        match kind:
            case "inner":
                return pairs
            case "left":
                alone = [(row + self._missing, w) for at, (row, w) in enumerate(left) if at not in matched]
                return pairs + alone
            case _:
                return [change for at, change in enumerate(left) if (at in matched) is (kind == "semi")]


def _keys(delta: Delta, key: Callable[[Row], Row]) -> set[Row]:
    """Returns the values that can equal others: NULL equals nothing."""
    found = {key(row) for row, _ in delta}
    return {k for k in found if None not in k}


def _by_key(delta: Delta, key: Callable[[Row], Row]) -> Matches:
    found: Matches = {}
    for row, weight in delta:
        value = key(row)
        if None not in value:
            found.setdefault(value, []).append((row, weight))
    return found
