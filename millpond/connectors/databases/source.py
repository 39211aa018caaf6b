"""Implements what all database sources share: what is new, and what to read of it.

By default a table is read once. With ``poll.interval`` it is polled: by the values of a column that grows, or as a
whole. With ``cdc`` it follows the changelog of the database.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors.abilities import Follows, Parallel, Perishable
from millpond.connectors.databases.select_source import SqlRows
from millpond.connectors.prefetch import ahead
from millpond.connectors.source import Split, with_seq
from millpond.errors import BadData, ConnectionLost, Error
from millpond.types import Schema

if TYPE_CHECKING:
    import sqlalchemy as sa

    from millpond.connectors.databases.incremental import HighWaterMark

ROW_BITS = 40


@dataclass(frozen=True, slots=True)
class SqlSplit(Split):
    """Describes rows from one value of the incremental column to another, or a range of the key of all rows."""

    first: int
    """The sequence number of its first row."""
    start: Mapping[str, Any] | None = None
    end: Mapping[str, Any] | None = None
    low: int | None = None
    high: int | None = None
    snapshot: str | None = None


class SqlSource(SqlRows, Follows, Parallel, Perishable):
    """Reads a database once, or polls it."""

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        super().__init__(uri, values, declared)
        self._newest: Offset | None = None
        self._compared_at: float | None = None
        self._polled_at = -math.inf

    # how it continues

    @property
    def follows(self) -> bool:
        return self.values["poll.interval"] is not None

    @property
    def runs(self) -> bool:
        """Returns whether a query over it keeps running: a column that grows determines what is new."""
        return self.follows and self.values["incremental.column"] is not None

    def changes(self, stop: threading.Event) -> Iterator[None]:
        while not stop.wait(self.values["poll.interval"]):
            yield

    @property
    def parallel(self) -> int:
        return int(self.values["parallel.readers"])

    # offsets

    def latest(self, start: Offset | None) -> Offset:
        with self._lock:
            number = 0 if start is None else start["read"]
            if self.values["incremental.column"] is not None:
                found = self._with_high_water_mark(start, number)
            elif start is None or self.follows:
                found = {"read": number + 1 if start is not None else 0, "step": 0}
            else:
                found = dict(start)
            self._newest = found
            return found

    def _with_high_water_mark(self, start: Offset | None, number: int) -> dict[str, Any]:
        """Returns the offset of the highest existing value. A comparison that is due reads everything again."""
        from millpond.connectors.databases.incremental import HighWaterMark

        interval, now = self.values["compare.interval"], time.monotonic()
        self._compared_at = self._compared_at or now
        due = start is not None and interval is not None and now - self._compared_at >= interval
        known = HighWaterMark.of(start) if start is not None else None
        mark = self._asked(lambda connection: self._highest(connection, known))
        if known is not None and not due and (mark is None or _same(mark, known)):
            assert start is not None
            return dict(start)
        if due:
            self._compared_at = now
            number += 1
        elif known is not None and (known.ties is None or (mark.value == known.value and mark.ties is None)):
            number += 1  # only a comparison shows which of so many rows with one value are new
        mark = mark or known
        assert mark is not None
        return {"read": number, "step": start["step"] + 1 if start is not None else 0, **mark.noted()}

    def _highest(self, connection: sa.Connection, known: HighWaterMark | None) -> HighWaterMark | None:
        """Returns the highest value, and the rows at it; None if there is nothing (new)."""
        import sqlalchemy as sa

        from millpond.connectors.databases.incremental import MANY, HighWaterMark, digests
        from millpond.connectors.databases.sqltext import named

        rows, column = self.database.rows, named(self._column(self._discovered()))
        more = self._polling(known)
        value = connection.execute(rows.one(sa.func.max(column), **more)).scalar()
        if value is None:
            return None if known is not None else HighWaterMark(None, 0, ())
        if isinstance(value, float) and math.isnan(value):
            raise BadData(
                'the column of option "incremental.column" has the value NaN, after which nothing comes'
            )
        if known is not None and known.value is not None and value < known.value:
            return None
        at = column == value
        count = int(connection.execute(rows.one(sa.func.count(), at, **more)).scalar() or 0)
        if count > MANY:
            return HighWaterMark(value, count, None)
        found = [d for batch in self._rows(connection, self._select(at, **more)) for d in digests(batch)]
        return HighWaterMark(value, len(found), tuple(sorted(found)))

    def _polling(self, known: HighWaterMark | None) -> dict[str, Any]:
        """Returns how ``Rows`` queries what is new since a mark."""
        from millpond.connectors.databases.incremental import before, lowest

        if self.values["poll.query"] is None or (known is None and not self._only_polled):
            return {}
        if known is None or known.value is None:
            column = self._discovered().find(self.values["incremental.column"])
            assert column is not None and column.type is not None
            return {"poll": True, "since": lowest(column.type, self.database.first_day)}
        return {"poll": True, "since": before(known.value)}

    @property
    def _only_polled(self) -> bool:
        return self.database.rows.table is None and self.database.rows.query is None

    def settled(self, at: Offset) -> bool:
        """Returns whether no later offset is known, without a query: that is done once in an interval."""
        return self._newest is None or self.reached(at, self._newest)

    def replaced(self, start: Offset, end: Offset) -> bool:
        return bool(start["read"] != end["read"])

    def stands(self, end: Offset) -> bool:
        """Returns False: a database changes."""
        return False

    def reached(self, at: Offset | None, end: Offset) -> bool:
        """Compares offsets: two of one place may have been reached in different steps."""
        if at is None:
            return False
        if {**at, "step": 0} == {**end, "step": 0}:
            return True
        if "read" not in at or "read" not in end:
            return False  # one of them is in a log of changes
        if at["read"] != end["read"] or "value" not in at or "value" not in end:
            return bool(at["read"] > end["read"])
        from millpond.connectors.databases.incremental import HighWaterMark

        one, other = HighWaterMark.of(at), HighWaterMark.of(end)
        if one.value is None or other.value is None:
            return other.value is None
        if one.value == other.value and one.ties is not None and other.ties is not None:
            return Counter(other.ties) <= Counter(one.ties)
        return bool(one.value > other.value)

    def poll(self, start: Offset | None) -> Offset:
        """Returns the known offset, until it is time to poll again."""
        now = time.monotonic()
        if start is not None and now - self._polled_at < self.values["poll.interval"]:
            return start
        self._polled_at = now
        return self.latest(start)

    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        if self.reached(start, end):
            return []
        if start is not None and not self.replaced(start, end):
            rows = self._asked(lambda connection: self._count(connection, start, end))
            return [SqlSplit(rows, None, end["step"] << ROW_BITS, start, end)]
        return self._whole(end)

    def _count(self, connection: sa.Connection, start: Offset, end: Offset) -> int:
        """Returns the maximum number of rows between two offsets."""
        import sqlalchemy as sa

        from millpond.connectors.databases.incremental import HighWaterMark
        from millpond.connectors.databases.sqltext import named

        column = named(self._column(self._discovered()))
        first, last = HighWaterMark.of(start), HighWaterMark.of(end)
        if last.value is None:
            return 0
        since = [] if first.value is None else [column >= first.value]
        counted = self.database.rows.one(
            sa.func.count(), column <= last.value, *since, **self._polling(first)
        )
        return int(connection.execute(counted).scalar() or 0)

    def _whole(self, end: Offset) -> list[Split]:
        """Returns splits of all rows, by ranges of the key if several threads read them."""
        place = end if "value" in end else None
        try:
            rows = self._asked(self.database.estimate)
        except ConnectionLost:
            raise
        except Error:  # the reader gets the error
            rows = None
        bounds = self._asked(self._bounds) if self.parallel > 1 else []
        snapshot = self._shared_snapshot() if bounds else self._held_snapshot()
        if not bounds:
            return [SqlSplit(rows, None, 0, None, place, snapshot=snapshot)]
        each = None if rows is None else rows // (len(bounds) + 1)
        edges = [None, *bounds, None]
        return [
            SqlSplit(each, None, i << ROW_BITS, None, place, low, high, snapshot)
            for i, (low, high) in enumerate(itertools.pairwise(edges))
        ]

    def _held_snapshot(self) -> str | None:
        """Returns the snapshot for one reader; None is the one at its beginning."""
        return None

    def _shared_snapshot(self) -> str | None:
        """Returns the snapshot for several readers."""
        return self.database.snapshot()

    @property
    def _range_column(self) -> str | None:
        """Returns the column whose ranges are read in parallel: a key of one whole number."""
        found = self._discovered()
        column = found.find(found.key[0]) if len(found.key) == 1 else None
        whole = column is not None and column.type is not None and pa.types.is_integer(column.type)
        return column.name if column is not None and whole and not self.database.rows.cut else None

    def _bounds(self, connection: sa.Connection) -> list[int]:
        """Returns values of the key between which there are about equally many."""
        import sqlalchemy as sa

        from millpond.connectors.databases.sqltext import named

        name = self._range_column
        if name is None:
            return []
        column, rows = named(name), self.database.rows
        low, high = (connection.execute(rows.one(f(column))).scalar() for f in (sa.func.min, sa.func.max))
        if low is None or high is None or high - low < self.parallel:
            return []
        count = self.parallel * 2
        return sorted({int(low) + (int(high) - int(low)) * i // count for i in range(1, count)})

    # rows

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        assert isinstance(split, SqlSplit)
        seq = split.first
        for batch in ahead(self._batches(split), self.values["prefetch.count"]):
            yield with_seq(batch, seq)
            seq += batch.num_rows

    def _batches(self, split: SqlSplit) -> Iterator[pa.RecordBatch]:
        with self.database.connected(split.snapshot) as connection:
            for statement, sieve in self._statements(split):
                for batch in self._rows(connection, statement):
                    kept = batch if sieve is None else sieve(batch)
                    size = self.values["batch.size"]
                    for at in range(0, kept.num_rows, size):
                        yield kept.slice(at, size)

    def _statements(self, split: SqlSplit) -> Iterator[tuple[sa.Select[Any], Any]]:
        """Yields the statements of a split, and the filter for its rows."""
        import sqlalchemy as sa

        from millpond.connectors.databases.incremental import HighWaterMark, Sieve
        from millpond.connectors.databases.sqltext import named

        conditions = self._pushed()
        if split.low is not None or split.high is not None:
            name = self._range_column
            assert name is not None
            key = named(name)
            if split.low is None:
                conditions.append(sa.or_(key < split.high, key.is_(None)))
            else:
                conditions += [key >= split.low, *([key < split.high] if split.high is not None else [])]
        if split.end is None:
            yield self._select(*conditions), None
            return
        column, end = named(self._column(self._discovered())), HighWaterMark.of(split.end)
        start = HighWaterMark.of(split.start) if split.start is not None else None
        more = self._polling(start)
        known = self._discovered().find(self.values["incremental.column"])
        if start is None and not more and known is not None and known.nullable:
            # Rows without a value are loaded with the table, and are never new.
            yield self._select(*conditions, column.is_(None)), None
        if end.value is None:
            return
        if start is None or start.value is None:
            yield self._select(*conditions, column < end.value, **more), None
            yield self._select(*conditions, column == end.value, **more), Sieve(end.ties)
            return
        seen = start.ties or ()
        if start.value == end.value:
            yield self._select(column == end.value, **more), Sieve(end.ties, seen)
            return
        yield self._select(column == start.value, **more), Sieve(None, seen)
        yield self._select(column > start.value, column < end.value, **more), None
        yield self._select(column == end.value, **more), Sieve(end.ties)


def _same(one: HighWaterMark, other: HighWaterMark) -> bool:
    return bool(one.value == other.value) and (one.count, one.ties) == (other.count, other.ties)
