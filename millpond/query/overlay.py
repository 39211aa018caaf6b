"""Applies changes on top of a snapshot: only their transaction sees them.

Rows are identified by the key, or by the row number of a table without one; rows that the transaction adds to such a
table have provisional numbers that no table reaches.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes
from millpond.errors import Conflict
from millpond.tables.base import Snapshot
from millpond.tables.memory import MemoryTable
from millpond.types import Column, Schema

_PROVISIONAL = 1 << 62
_versions = itertools.count(-1, -1)
"""Those of tables with changes that are not committed: none is that of a commit."""


class Overlay(Snapshot):
    """Shows a table with changes: ``stage`` adds changes; reading sees them at once. Used by one thread."""

    def __init__(self, base: Snapshot):
        self.base = base
        self.schema = base.schema
        self._keyed = bool(base.schema.key)
        identity = base.schema.key or (ROW,)
        columns = base.schema.columns if self._keyed else (*base.schema.columns, Column(ROW, pa.int64()))
        keys = tuple(c for c in columns if c.name in identity)
        self._identity = tuple(c.name for c in keys)
        self._put = MemoryTable(Schema(columns, self._identity))
        self._gone = MemoryTable(Schema(keys, self._identity))
        self._fresh = 0
        self.version = next(_versions)
        self.changed = False

    def stage(self, changes: Changes) -> None:
        """Adds changes on top of the existing ones."""
        rows = changes.rows if self._keyed else self._numbered(changes.rows)
        deleted = changes.deleted
        kept = rows if deleted is None else rows.filter(pc.invert(deleted))
        if deleted is not None:
            keys = rows.filter(deleted).select(self._identity)
            self._gone.apply(Changes(keys))
            self._put.apply(Changes(_filled(keys, self._put.schema), _all_true(keys.num_rows)))
        if kept.num_rows:
            keys = kept.select(self._identity)
            self._put.apply(Changes(kept.select(list(self._put.schema.names))))
            self._gone.apply(Changes(keys, _all_true(keys.num_rows)))
        self.version = next(_versions)
        self.changed = True

    def _numbered(self, rows: pa.Table) -> pa.Table:
        """Gives rows without a number a provisional one."""
        given = (
            rows[ROW] if ROW in rows.column_names else pa.chunked_array([pa.nulls(rows.num_rows, pa.int64())])
        )
        first = _PROVISIONAL + self._fresh
        fresh = pa.array(range(first, first + rows.num_rows), pa.int64())
        self._fresh += rows.num_rows
        numbers = pc.coalesce(given, pa.chunked_array([fresh]))
        plain = rows.drop_columns([ROW]) if ROW in rows.column_names else rows
        return plain.append_column(ROW, numbers)

    def changes(self) -> Changes:
        """Returns all staged changes as one, for the table itself."""
        put, gone = self._put.scan(), self._gone.scan()
        if not self._keyed:
            put = put.sort_by(ROW)
            numbers = put[ROW]
            real = pc.if_else(pc.less(numbers, _PROVISIONAL), numbers, pa.scalar(None, pa.int64()))
            put = put.drop_columns([ROW]).append_column(ROW, real)
            gone = gone.filter(pc.less(gone[ROW], _PROVISIONAL))
        if not gone.num_rows:
            return Changes(put)
        both = pa.concat_tables([_filled(gone, self._put.schema), put])
        return Changes(both, pa.array([True] * gone.num_rows + [False] * put.num_rows))

    def touched(self) -> pa.Table:
        """Returns the identities of all rows that the changes affect, without new rows of a table without a key."""
        keys = pa.concat_tables([self._put.scan(list(self._identity)), self._gone.scan()])
        return keys if self._keyed else keys.filter(pc.less(keys[ROW], _PROVISIONAL))

    def check_untouched(self, now: Snapshot, table: str) -> None:
        """Raises Conflict if a row that the changes affect has changed."""
        touched = self.touched()
        if not touched.num_rows:
            return
        names = touched.column_names
        if self._keyed:
            before, after = self.base.get(names, touched), now.get(names, touched)
        else:
            before, after = (_of_rows(s, touched) for s in (self.base, now))
        if not _same(before, after, names):
            raise Conflict(
                f'another commit has changed the same rows of table "{table}"',
                hint="run the transaction again",
            )

    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        under = self._without_touched(self.base.get(columns, keys, nulls=nulls, rows=not self._keyed))
        over = self._put.get(columns, keys, nulls=nulls).select(under.column_names).cast(under.schema)
        found = pa.concat_tables([under, over])
        return found if self._keyed or rows else found.drop_columns([ROW])

    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        found = self._merged()
        if not rows and not self._keyed:
            found = found.drop_columns([ROW])
        return found if columns is None else found.select(list(columns))

    def _merged(self) -> pa.Table:
        under = self._without_touched(self.base.scan(rows=True) if not self._keyed else self.base.scan())
        return pa.concat_tables([under, self._put.scan().select(under.column_names).cast(under.schema)])

    def _without_touched(self, rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return rows
        keys = self._touched_of(rows.select(self._identity))
        if not keys.num_rows:
            return rows
        number = rows.select(self._identity).append_column("__at", pa.array(range(rows.num_rows), pa.int64()))
        kept = number.join(
            keys.cast(rows.select(self._identity).schema), list(self._identity), join_type="left anti"
        )
        at = kept["__at"]
        return rows.take(at.take(pc.sort_indices(at)))

    def _touched_of(self, keys: pa.Table) -> pa.Table:
        """Returns the identities that the changes affect; if that is less work only those among ``keys``."""
        names = list(self._identity)
        if keys.num_rows < len(self._put) + len(self._gone):
            return pa.concat_tables(
                [t.get(names, keys, nulls=True).select(names) for t in (self._put, self._gone)]
            )
        return pa.concat_tables([self._put.scan(names), self._gone.scan()])

    def __len__(self) -> int:
        touched = self.touched()
        if self._keyed and touched.num_rows:
            touched = self.base.get(self._identity, touched, nulls=True)
        return len(self.base) - int(touched.num_rows) + len(self._put)


def _filled(keys: pa.Table, schema: Schema) -> pa.Table:
    """Returns keys as rows of the schema, NULL elsewhere."""
    arrow = schema.arrow()
    columns = [
        keys[f.name] if f.name in keys.column_names else pa.nulls(keys.num_rows, f.type) for f in arrow
    ]
    return pa.table(columns, schema=arrow)


def _all_true(count: int) -> pa.BooleanArray:
    return pa.array([True] * count, pa.bool_())


def _of_rows(snapshot: Snapshot, rows: pa.Table) -> pa.Table:
    return snapshot.scan(rows=True).join(rows, rows.column_names, join_type="left semi")


def _same(a: pa.Table, b: pa.Table, by: list[str]) -> bool:
    if a.num_rows != b.num_rows:
        return False
    order = [(name, "ascending") for name in by]
    left: Any = a.sort_by(order).combine_chunks().to_pylist()
    return bool(left == b.sort_by(order).combine_chunks().to_pylist())
