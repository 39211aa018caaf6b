"""Passes the rows of several inputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from millpond.sql.incremental.nodes import UnionNode
from millpond.views.operators.base import Operator, Round
from millpond.views.rows import Delta, Row, net


class Union(Operator):
    def __init__(self, node: UnionNode, children: Sequence[Operator]):
        super().__init__(node)
        self._children = children

    def changed(self, round_: Round) -> Delta:
        return net(change for child in self._children for change in child.changes(round_))

    def rows(self, round_: Round, columns: tuple[int, ...], keys: Collection[Row], *, old: bool) -> Delta:
        return [row for child in self._children for row in child.find(round_, columns, keys, old=old)]
