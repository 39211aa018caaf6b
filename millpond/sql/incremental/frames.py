"""Builds the operators of a view that are not aggregates: what an operator returns, and the steps on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from millpond.sql.aggregate.nodes import column, fitted, named, source
from millpond.sql.conjuncts import all_of, outer_columns, replace_columns
from millpond.sql.incremental.nodes import IN, PLACE, Node, Outputs, StepNode, column_at, is_plain
from millpond.sql.predicates import read_condition
from millpond.sql.resolve import Resolved
from millpond.sql.typing import type_of
from millpond.types import Column, Schema

ColumnId = tuple[str, str]
"""Alias and column, in lower case."""


class NotKept(Exception):
    """Says which operator of a query cannot be kept by changes."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Contains an operator, and the places of the columns of the query in its rows."""

    node: Node
    places: Mapping[ColumnId, int]

    def knows(self, node: exp.Expr) -> bool:
        """Returns whether all columns of an expression are here."""
        return all(id_of(c) in self.places for c in outer_columns(node))

    def at(self, node: exp.Expr) -> int | None:
        """Returns the place of an expression that is a column."""
        node = node.unnest()
        return self.places.get(id_of(node)) if isinstance(node, exp.Column) else None

    def over(self, node: exp.Expr) -> exp.Expr:
        """Returns the expression over the columns of ``IN``."""

        def leaf(found: exp.Column) -> exp.Expr:
            at = self.places.get(id_of(found))
            if at is None:
                raise NotKept("a correlated subquery")
            return column(IN, Column(column_at(at), self.node.types[at]))

        return replace_columns(node, leaf)

    def filtered(self, conditions: Sequence[exp.Expr]) -> Frame:
        """Returns the frame with only the rows for which all conditions hold."""
        if not conditions:
            return self
        columns = [column(IN, Column(column_at(i), t)) for i, t in enumerate(self.node.types)]
        return Frame(self.step(columns, conditions, self.node.types, rewritten=True), self.places)

    def step(
        self,
        outputs: Sequence[exp.Expr],
        conditions: Sequence[exp.Expr],
        types: Sequence[pa.DataType | None],
        *,
        rewritten: bool = False,
    ) -> StepNode:
        """Returns the outputs of the rows for which the conditions hold; ``rewritten`` ones are over ``IN``."""
        made = [o if rewritten else self.over(o) for o in outputs]
        where = all_of([self.over(c) for c in conditions])
        return StepNode(self.node, make_outputs(self.node.types, made, where, types))


def id_of(node: exp.Column) -> ColumnId:
    return node.table.lower(), node.name.lower()


def make_outputs(
    types: Sequence[pa.DataType],
    outputs: Sequence[exp.Expr],
    where: exp.Expr | None,
    wanted: Sequence[pa.DataType | None],
) -> Outputs:
    """Returns the outputs over rows of ``IN`` with columns of these ``types``, in the ``wanted`` types."""
    found = [w or type_of(o) for o, w in zip(outputs, wanted, strict=True)]
    for node in (*outputs, *([] if where is None else [where])):
        if node.find(exp.Query) is not None:
            raise NotKept("a subquery")
        if node.find(exp.Window) is not None:
            raise NotKept("OVER")
    if not all(is_plain(t) for t in found):
        raise NotKept("a column that is not a number, text, date, time or Boolean")
    schema = Schema(tuple(Column(column_at(i), t) for i, t in enumerate(types)))
    place = column(IN, Column(PLACE, pa.int64()))
    # Columns of one name in an operator and below it are different: those of the output are named o0, o1, …
    named_ = [named(fitted(o, t), f"o{i}") for i, (o, t) in enumerate(zip(outputs, found, strict=True))]
    select = exp.Select(expressions=[*named_, named(place, PLACE)], from_=source(IN))
    if where is not None:
        select.set("where", exp.Where(this=where))
    columns = (*(Column(f"o{i}", t) for i, t in enumerate(found)), Column(PLACE, pa.int64()))
    predicate, whole = (None, False) if where is None else read_condition(where, schema, IN)
    testable = whole and not any(
        pa.types.is_floating(t) and column_at(i) in _names(where) for i, t in enumerate(types)
    )
    return Outputs(
        Resolved(select, Schema(columns), ()),
        tuple(t for t in found if t is not None),
        tuple(_pick(o, types, t) for o, t in zip(outputs, found, strict=True)),
        where is not None,
        predicate if testable else None,
    )


def _names(where: exp.Expr | None) -> set[str]:
    return set() if where is None else {c.name for c in where.find_all(exp.Column)}


def _pick(output: exp.Expr, types: Sequence[pa.DataType], dtype: pa.DataType | None) -> int | None:
    output = output.unalias().unnest()
    if not isinstance(output, exp.Column):
        return None
    at = int(output.name[1:])
    return at if types[at] == dtype else None
