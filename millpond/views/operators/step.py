"""Filters rows and computes columns."""

from __future__ import annotations

from collections.abc import Collection

from millpond.query.evaluate import Evaluator
from millpond.sql.incremental.nodes import StepNode
from millpond.views.expressions import Computed
from millpond.views.operators.base import Operator, Round
from millpond.views.rows import Delta, Row, net


class Step(Operator):
    def __init__(self, node: StepNode, child: Operator, evaluator: Evaluator):
        super().__init__(node)
        self._picks = node.outputs.picks
        self._child = child
        self._computed = Computed(node.outputs, node.child.types, evaluator)

    def changed(self, round_: Round) -> Delta:
        return net(self._computed.apply(self._child.changes(round_)))

    def rows(self, round_: Round, columns: tuple[int, ...], keys: Collection[Row], *, old: bool) -> Delta:
        below = tuple(p for c in columns if (p := self._picks[c]) is not None)
        return self._computed.apply(self._child.find(round_, below, keys, old=old))
