"""Evaluates window functions again, over the rows of the partitions that a change touches."""

from __future__ import annotations

from collections.abc import Collection

from millpond.query.evaluate import Evaluator
from millpond.sql.incremental.nodes import IN, WindowNode, column_at
from millpond.views.expressions import answer_of, picker
from millpond.views.operators.base import Operator, Recompute, Round
from millpond.views.rows import Delta, Row, net, rows_of, table_of


class Window(Operator):
    def __init__(self, node: WindowNode, child: Operator, evaluator: Evaluator):
        super().__init__(node)
        self._window = node
        self._child = child
        self._key = picker(node.columns)
        self._names = [column_at(i) for i in range(len(node.child.types))]
        self._schema = node.query.schema.arrow()
        self._answer = answer_of(evaluator, node.query)

    def changed(self, round_: Round) -> Delta:
        keys = {self._key(row) for row, _ in self._child.changes(round_)}
        if not keys:
            return []
        before, now = (
            self._evaluated(self._child.find(round_, self._window.columns, keys, old=old))
            for old in (True, False)
        )
        return net([*((row, -1) for row in before), *((row, 1) for row in now)])

    def rows(self, round_: Round, columns: tuple[int, ...], keys: Collection[Row], *, old: bool) -> Delta:
        raise Recompute("the rows of windows are not found by an index")

    def _evaluated(self, found: Delta) -> list[Row]:
        rows = [row for row, weight in found for _ in range(weight)]
        if not rows:
            return []
        made = self._answer({IN: table_of(rows, self._names, self._window.child.types)}).cast(self._schema)
        return rows_of(made, made.column_names)
