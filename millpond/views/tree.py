"""Runs the operators of a view together: one round for each change of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from millpond.query.evaluate import Answer, Evaluator
from millpond.sql.columns_read import columns_read
from millpond.sql.incremental.evaluated_queries import loads
from millpond.sql.incremental.nodes import (
    DistinctNode,
    GroupNode,
    IndexNode,
    JoinNode,
    Node,
    ScanNode,
    SetNode,
    StepNode,
    TopNode,
    UnionNode,
    WindowNode,
    walk,
)
from millpond.sql.resolve import Resolved
from millpond.tables.base import Snapshot
from millpond.views.expressions import answer_of
from millpond.views.operators.base import Operator, Round
from millpond.views.operators.distinct import Distinct
from millpond.views.operators.group import Group
from millpond.views.operators.index import Index
from millpond.views.operators.join import Join
from millpond.views.operators.scan import Scan
from millpond.views.operators.set_operation import SetOperation
from millpond.views.operators.step import Step
from millpond.views.operators.top import Top
from millpond.views.operators.union import Union
from millpond.views.operators.window import Window
from millpond.views.rows import Delta


class Tree:
    """Keeps the rows of a view by changes. Raises OnlySpark if an operator is not computed in the process.

    After a round that failed its state is not valid: ``load`` sets it again.
    """

    def __init__(self, root: Node, evaluator: Evaluator):
        self._evaluator = evaluator
        self._operators: dict[int, Operator] = {}
        self._root = self._made(root)
        self._answers: dict[int, Answer] = {
            id(query): answer_of(evaluator, query)
            for visit in walk(root)
            if not visit.again
            for query in loads(visit.node)
        }

    def _made(self, node: Node) -> Operator:
        found = self._operators.get(id(node))
        if found is None:
            found = self._operators[id(node)] = self._make(node)
        return found

    def _make(self, node: Node) -> Operator:
        evaluator = self._evaluator
        match node:
            case ScanNode():
                return Scan(node)
            case StepNode():
                return Step(node, self._made(node.child), evaluator)
            case GroupNode():
                below = None if node.regrouped is None else self._made(node.regrouped.child)
                return Group(node, self._made(node.child), below, evaluator)
            case JoinNode():
                return Join(node, self._made(node.left), self._made(node.right), evaluator)
            case DistinctNode():
                return Distinct(node, self._made(node.child))
            case IndexNode():
                return Index(node, self._made(node.child))
            case WindowNode():
                return Window(node, self._made(node.child), evaluator)
            case SetNode():
                return SetOperation(node, [self._made(side) for side in node.sides])
            case TopNode():
                return Top(node, self._made(node.child))
            case UnionNode():
                return Union(node, [self._made(child) for child in node.children])

    def load(self, now: Callable[[str], Snapshot], loaded: Callable[[], None] = lambda: None) -> None:
        """Sets the state of all operators; ``now`` returns the snapshot of a table, ``loaded`` is called after each
        operator.
        """
        self.clear()

        def answer(query: Resolved) -> pa.Table:
            read = columns_read(query)
            inputs: Mapping[str, Any] = {
                i.view: now(i.relation.name).scan(read[i.view]) for i in query.inputs
            }
            return self._answers[id(query)](inputs).cast(query.schema.arrow())

        for operator in self._operators.values():
            operator.load(answer)
            loaded()

    def clear(self) -> None:
        """Frees the state of all operators."""
        for operator in self._operators.values():
            operator.clear()

    def changes(self, round_: Round) -> Delta:
        """Returns the changes of the view's rows."""
        found = self._root.changes(round_)
        self.end()
        return found

    def end(self) -> None:
        """Ends a round."""
        for operator in self._operators.values():
            operator.end()

    @property
    def size(self) -> int:
        """Returns how many entries the state has."""
        return sum(operator.size for operator in self._operators.values())

    @property
    def bytes(self) -> int:
        """Returns about how many bytes the state takes."""
        return sum(operator.bytes for operator in self._operators.values())
