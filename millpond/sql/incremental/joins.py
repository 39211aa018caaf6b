"""Builds the operators that join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal

from sqlglot import exp

from millpond.sql.aggregate.nodes import cast, column
from millpond.sql.conjuncts import all_of, compared_alike, conjuncts
from millpond.sql.incremental.frames import ColumnId, Frame, NotKept, make_outputs
from millpond.sql.incremental.lookup_columns import finds
from millpond.sql.incremental.nodes import (
    IN,
    GroupNode,
    IndexNode,
    JoinKind,
    JoinNode,
    Node,
    StepNode,
    UnionNode,
    column_at,
    is_key,
)
from millpond.types import Column

SINGLE = "single"
"""The note on a join with a scalar subquery, of which a second row is an error."""


@dataclass
class Item:
    """Describes an input of FROM, how it is joined, and the conditions of that join."""

    frame: Frame
    kind: JoinKind
    on: list[exp.Expr] = field(default_factory=list)
    single: bool = False


def kind_of(join: exp.Join | None) -> tuple[JoinKind | Literal["right", "full"], list[exp.Expr]]:
    """Returns the kind of a join, and its conditions."""
    if join is None:
        return "inner", []
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if join.args.get("using") or join.method:
        raise NotKept("NATURAL JOIN")
    on = join.args.get("on")
    conditions = list(conjuncts(on)) if on is not None else []
    if any(c.find(exp.Query) is not None for c in conditions):
        raise NotKept("a subquery in a condition of JOIN")
    if kind in ("SEMI", "ANTI"):
        return ("semi" if kind == "SEMI" else "anti"), conditions
    if side in ("RIGHT", "FULL"):
        return ("right" if side == "RIGHT" else "full"), conditions
    return ("left" if side == "LEFT" else "inner"), conditions


def is_single(join: exp.Join | None) -> bool:
    """Returns whether at most one row of the right side matches a row of the left one."""
    return join is not None and bool(join.meta.get(SINGLE))


def join_outer(kind: Literal["right", "full"], left: Frame, right: Frame, on: Sequence[exp.Expr]) -> Frame:
    """Returns a join that keeps all rows of the right side, or of both. All rows of both are those of LEFT JOIN, and
    the rows of the right side that match nothing.
    """
    if kind == "right":
        return join_one("left", right, left, on)
    matched, alone = join_one("left", left, right, on), join_one("anti", right, left, on)
    nulls: list[exp.Expr] = [cast(exp.Null(), t) for t in left.node.types]
    columns = [column(IN, Column(column_at(i), t)) for i, t in enumerate(right.node.types)]
    step = alone.step([*nulls, *columns], [], matched.node.types, rewritten=True)
    return Frame(UnionNode((matched.node, step)), matched.places)


def join_all(items: Sequence[Item], pending: list[exp.Expr]) -> tuple[Frame, list[exp.Expr]]:
    """Returns all inputs joined, and those of the ``pending`` conditions that are left."""
    frame, rest = items[0].frame, list(items[1:])
    while rest:
        item = _next(frame, rest, pending)
        rest.remove(item)
        if item.kind == "inner":
            pairs, pending = pairs_of(frame, item.frame, pending)
            frame = joined("inner", frame, item.frame, pairs, [])
        else:
            frame = join_one(item.kind, frame, item.frame, item.on, single=item.single)
    return frame, pending


def join_one(
    kind: JoinKind, frame: Frame, other: Frame, conditions: Sequence[exp.Expr], *, single: bool = False
) -> Frame:
    """Returns a join that is not inner, under its own conditions: those on the right side alone filter it."""
    pairs, left = pairs_of(frame, other, conditions)
    own = [c for c in left if other.knows(c)]
    others = [c for c in left if not any(c is o for o in own)]
    return joined(kind, frame, other.filtered(own), pairs, others, single=single)


def _next(frame: Frame, rest: list[Item], pending: Sequence[exp.Expr]) -> Item:
    """Returns the input to join next: of the next inner ones, the first with an equality, or else one of one row."""
    if rest[0].kind != "inner":
        return rest[0]
    inner = list(takewhile(lambda item: item.kind == "inner", rest))
    equal = [item for item in inner if pairs_of(frame, item.frame, pending)[0]]
    alone = [item for item in inner if _is_total(item.frame.node)]
    return next(iter((*equal, *alone, *inner)))


def _is_total(node: Node) -> bool:
    """Returns whether an operator has one row."""
    match node:
        case GroupNode(keys=keys):
            return not keys
        case StepNode(child) | IndexNode(child):
            return _is_total(child)
        case _:
            return False


def pairs_of(
    frame: Frame, other: Frame, conditions: Sequence[exp.Expr]
) -> tuple[list[tuple[int, int]], list[exp.Expr]]:
    """Returns the columns of both that must be equal, and the other conditions."""
    pairs: list[tuple[int, int]] = []
    left: list[exp.Expr] = []
    for condition in conditions:
        pair = None
        if isinstance(condition, exp.EQ) and compared_alike(condition.this, condition.expression):
            a, b = condition.this, condition.expression
            for x, y in ((a, b), (b, a)):
                at, to = frame.at(x), other.at(y)
                if at is not None and to is not None and is_key(frame.node.types[at]):
                    pair = at, to
        if pair is None:
            left.append(condition)
        else:
            pairs.append(pair)
    return pairs, left


def joined(
    kind: JoinKind,
    frame: Frame,
    other: Frame,
    pairs: Sequence[tuple[int, int]],
    conditions: Sequence[exp.Expr],
    *,
    single: bool = False,
) -> Frame:
    """Returns the join of rows with equal pairs of columns, for which the conditions hold too."""
    if not finds(frame.node, tuple(a for a, _ in pairs)) or not finds(other.node, tuple(b for _, b in pairs)):
        raise NotKept("a join with rows that no index finds")
    if frame.places.keys() & other.places.keys():
        raise NotKept("two inputs of one name")
    width = len(frame.node.types)
    places: dict[ColumnId, int] = {**frame.places, **{p: at + width for p, at in other.places.items()}}
    both = (*frame.node.types, *other.node.types)
    residual = None
    if conditions:
        pair = Frame(JoinNode("inner", frame.node, other.node, tuple(pairs), None), places)
        columns = [column(IN, Column(column_at(i), t)) for i, t in enumerate(both)]
        residual = make_outputs(both, columns, all_of([pair.over(c) for c in conditions]), both)
    node = JoinNode(kind, frame.node, other.node, tuple(pairs), residual, single)
    return Frame(node, places if kind in ("inner", "left") else frame.places)
