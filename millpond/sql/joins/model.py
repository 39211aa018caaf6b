"""A join of two streams, as the rest of a query sees it: one stream more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from millpond.errors import Place
from millpond.sql.catalog import Relation
from millpond.sql.resolve import Input, Resolved

LEFT, RIGHT = "__left", "__right"
"""The views of the two sides in the query for pairs."""
LEFT_ID, RIGHT_ID = "_left", "_right"
"""The columns of pairs that say which rows have met."""
ID, MATCHED = "_id", "_matched"
"""Beside the columns of a kept row: its number on its side, and whether it has met one."""

Kind = Literal["INNER", "LEFT", "RIGHT", "FULL"]


@dataclass(frozen=True, slots=True)
class Mark:
    """The watermark of a side: the highest value of ``column`` of its stream, less ``delay`` in microseconds. For a
    side that is a join itself ``column`` is the one of that join's rows."""

    column: str
    delay: int


@dataclass(frozen=True, slots=True)
class Side:
    """One side: ``query`` gives its rows, under the names that they have in the joined stream.

    ``time`` is the column that the time bound is about. A row meets rows of the other side up to ``reach``
    microseconds after its own time; None if there is no such bound. ``mark`` is there if ``time`` follows the
    watermark of the stream. ``outer``: rows that meet none are given too.
    """

    alias: str
    query: Resolved
    time: str | None
    reach: int | None
    mark: Mark | None
    outer: bool

    @property
    def stream(self) -> Relation:
        return next(i.relation for i in self.query.inputs if i.relation.running)


@dataclass(frozen=True, slots=True)
class StreamJoin:
    """Two sides, the query for the pairs of their rows, and pairs of columns that are equal in each of them."""

    kind: Kind
    sides: tuple[Side, Side]
    pairs: Resolved
    keys: tuple[tuple[str, str], ...]
    condition: str
    place: Place | None

    def bounded(self, side: int) -> bool:
        """Whether the rows of a side leave: the watermark of the other one passes what they could meet."""
        return self.sides[side].reach is not None and self.sides[1 - side].mark is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedStreams(Relation):
    """The rows that a join of two streams gives."""

    join: StreamJoin


def joins_of(resolved: Resolved | None) -> Iterator[StreamJoin]:
    """The joins of streams under a query, those below first."""
    for i in resolved.inputs if resolved is not None else ():
        if isinstance(i.relation, JoinedStreams):
            for side in i.relation.join.sides:
                yield from joins_of(side.query)
            yield i.relation.join


def all_inputs(inputs: Iterable[Input]) -> Iterator[Input]:
    """The inputs, those under joins of streams in their place."""
    for i in inputs:
        if isinstance(i.relation, JoinedStreams):
            for side in i.relation.join.sides:
                yield from all_inputs(side.query.inputs)
        else:
            yield i
