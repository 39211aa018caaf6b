"""Models a join of two streams as the rest of a query sees it: one more stream."""

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
"""The columns of pairs that say which rows matched."""
ID, MATCHED = "_id", "_matched"
"""In addition to the columns of a stored row: its number on its side, and whether it has matched."""

Kind = Literal["INNER", "LEFT", "RIGHT", "FULL"]


@dataclass(frozen=True, slots=True)
class StreamWatermark:
    """Describes the watermark of a side: the highest value of ``column`` of its stream, less ``delay`` in microseconds.
    For a side that is itself a join, ``column`` is a column of that join's rows.
    """

    column: str
    delay: int


@dataclass(frozen=True, slots=True)
class Side:
    """Describes one side: ``query`` returns its rows, with their names in the joined stream.

    ``time`` is the column of the time bound. A row matches rows of the other side up to ``reach`` microseconds after
    its own time; None if there is no such bound. ``mark`` is set if ``time`` follows the watermark of the stream.
    ``outer``: rows without a match are returned too.
    """

    alias: str
    query: Resolved
    time: str | None
    reach: int | None
    mark: StreamWatermark | None
    outer: bool

    @property
    def stream(self) -> Relation:
        return next(i.relation for i in self.query.inputs if i.relation.running)


@dataclass(frozen=True, slots=True)
class StreamJoin:
    """Describes two sides, the query for the pairs of their rows, and the pairs of columns that are equal in
    each of them.
    """

    kind: Kind
    sides: tuple[Side, Side]
    pairs: Resolved
    keys: tuple[tuple[str, str], ...]
    condition: str
    place: Place | None

    def bounded(self, side: int) -> bool:
        """Returns whether the rows of a side expire: the watermark of the other side passes every possible match."""
        return self.sides[side].reach is not None and self.sides[1 - side].mark is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedStreams(Relation):
    """Represents the rows that a join of two streams returns."""

    join: StreamJoin


def joins_of(resolved: Resolved | None) -> Iterator[StreamJoin]:
    """Yields the joins of streams under a query, inner ones first."""
    for i in resolved.inputs if resolved is not None else ():
        if isinstance(i.relation, JoinedStreams):
            for side in i.relation.join.sides:
                yield from joins_of(side.query)
            yield i.relation.join


def all_inputs(inputs: Iterable[Input]) -> Iterator[Input]:
    """Yields the inputs, with those under joins of streams in their place."""
    for i in inputs:
        if isinstance(i.relation, JoinedStreams):
            for side in i.relation.join.sides:
                yield from all_inputs(side.query.inputs)
        else:
            yield i
