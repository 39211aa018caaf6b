"""Removes rows of a table whose time is over, by ordinary commits: what follows the table follows these too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Changes
from millpond.predicates import Compare
from millpond.sql.catalog import Relation
from millpond.store.store import Store
from millpond.tables.base import Snapshot
from millpond.types import Column

PIECE = 10_000
"""Rows of a keyed table that one commit removes."""
LARGE_PIECE = 100_000
"""The same of a table without a key, where each commit looks through all rows."""


def remove_expired(store: Store, table: Relation, now: datetime, ended: Callable[[], bool]) -> int:
    """Removes the rows whose time is over at that time, until ``ended``; returns how many."""
    ttl, backend = table.ttl, store.table(table.name)
    if ttl is None or backend is None:
        return 0
    before, count, some = now - timedelta(seconds=ttl.seconds), 0, -1
    if ttl.column is None:
        while some and not ended():
            some = store.change(table.name, lambda s: _deletion(s.changed_before(before.timestamp(), PIECE)))
            count += some
        return count
    column = backend.schema.find(ttl.column)
    assert column is not None
    where = Compare(column.name, "<", _limit(column, before))
    if not backend.schema.key:
        while some and not ended():
            some = store.change(table.name, partial(_first_expired, where=where))
            count += some
        return count
    for keys in _expired_keys(store.snapshots().snapshot(table.name), where):
        if ended():
            break
        count += store.change(table.name, partial(_expired_of, keys=keys, where=where))
    return count


def _limit(column: Column, before: datetime) -> datetime | date:
    """Returns the time as a value of the column: rows with a smaller one are expired. A day begins at midnight, UTC."""
    if column.type is not None and pa.types.is_date(column.type):
        day = before.astimezone(UTC).date()
        return (
            day if before == datetime(day.year, day.month, day.day, tzinfo=UTC) else day + timedelta(days=1)
        )
    has_zone = column.type is not None and column.type.tz is not None
    return before if has_zone else before.astimezone(UTC).replace(tzinfo=None)


def _is_expired(rows: pa.Table, where: Compare) -> pa.ChunkedArray:
    limit = pa.scalar(where.value, rows.schema.field(where.column).type)
    return pc.fill_null(pc.less(rows[where.column], limit), False)


def _expired_keys(snapshot: Snapshot, where: Compare) -> Iterator[pa.Table]:
    """Yields the keys of expired rows, some at a time."""
    names = [c.name for k in snapshot.schema.key if (c := snapshot.schema.find(k)) is not None]
    if snapshot.remote:
        rows = snapshot.filtered(where)
    else:
        rows = snapshot.scan(list(dict.fromkeys([*names, where.column])))
    keys = rows.filter(_is_expired(rows, where)).select(names)
    for first in range(0, keys.num_rows, PIECE):
        yield keys.slice(first, PIECE)


def _expired_of(snapshot: Snapshot, *, keys: pa.Table, where: Compare) -> tuple[Changes | None, int]:
    """Returns the deletion of those of the rows that are still expired."""
    rows = snapshot.get(keys.column_names, keys, nulls=True)
    return _deletion(rows.filter(_is_expired(rows, where)))


def _first_expired(snapshot: Snapshot, *, where: Compare) -> tuple[Changes | None, int]:
    rows = snapshot.filtered(where, rows=True)
    return _deletion(rows.filter(_is_expired(rows, where)).slice(0, LARGE_PIECE))


def _deletion(rows: pa.Table) -> tuple[Changes | None, int]:
    gone = pa.array([True] * rows.num_rows, pa.bool_())
    return (Changes(rows, gone) if rows.num_rows else None), rows.num_rows
