"""Warns about what a join of streams stores forever, and refuses what it would wait for forever."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from millpond.errors import Caution, SqlError
from millpond.sql.joins.model import Side, StreamJoin, joins_of
from millpond.sql.resolve import Resolved


def join_warnings(resolved: Resolved | None) -> Iterator[Caution]:
    """Yields a warning for each join of streams without a time bound, with what grows."""
    for join in joins_of(resolved):
        endless = [s for s in join.sides if s.reach is None]
        if len(endless) == 2:
            yield Caution(
                f"{_names(join)} are joined without a time bound: all rows of both are kept for ever",
                hint=f"add one to ON: {_example(join)}",
                place=join.place,
            )
        elif endless:
            yield Caution(
                f"{_names(join)} are joined with a time bound at one end only: all rows of"
                f' "{endless[0].stream.name}" are kept for ever',
                hint=f"bound both ends: {_example(join)}",
                place=join.place,
            )


def unbounded_outer(join: StreamJoin) -> Iterator[SqlError]:
    """Yields the error for an outer join whose unmatched rows could never be returned."""
    for n, side in enumerate(join.sides):
        if not side.outer or join.bounded(n):
            continue
        other = join.sides[1 - n]
        message = (
            f'{join.kind} JOIN of two streams: when a row of "{side.stream.name}" has met none is never known'
        )
        if side.reach is None:
            yield SqlError(
                f"{message} without a time bound",
                hint=f"add one to ON: {_example(join)}",
                place=join.place,
            )
        else:
            time = _own_time(other) or "ts"
            yield SqlError(
                f'{message} without a watermark of "{other.stream.name}" for the time of its bound',
                hint=f"declare it with the stream: WATERMARK FOR {time} AS {time} - INTERVAL 5 SECONDS",
                place=join.place,
            )


def _names(join: StreamJoin) -> str:
    return " and ".join(f'"{s.stream.name}"' for s in join.sides)


def _own_time(side: Side) -> str | None:
    """Returns a time column of the side, as named in the text."""
    if side.time is not None:
        return side.time.removeprefix(f"{side.alias}_")
    stream = side.stream
    if stream.watermark is not None:
        return stream.watermark.column
    return next((c.name for c in stream.schema if c.type is not None and pa.types.is_timestamp(c.type)), None)


def _example(join: StreamJoin) -> str:
    left, right = (f"{s.alias}.{_own_time(s) or 'ts'}" for s in join.sides)
    return f"AND {right} BETWEEN {left} - INTERVAL 1 HOUR AND {left} + INTERVAL 1 HOUR"
