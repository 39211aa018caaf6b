"""Shows a table as it is after changes that are on their way: only those who prepare their commit see it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes
from millpond.query.overlay import Overlay
from millpond.tables.base import Snapshot


class Later(Snapshot):
    """Shows the rows of ``base`` after changes that its table has checked."""

    def __init__(self, base: Snapshot, changes: Changes):
        self.schema = base.schema
        self._base = base
        self._changes = _last_of_each(changes, base.schema.key)

    @property
    def version(self) -> int:  # type: ignore[override]
        return self._overlay.version

    @cached_property
    def difference(self) -> tuple[pa.Table, pa.Table]:
        """Returns the rows that go, and those that come. Rows that stay as they are may be in both."""
        names, put = list(self.schema.names), self._changes.put
        key = list(self.schema.key)
        if key:
            gone = self._base.get(key, self._changes.rows.select(key), nulls=True)
        elif ROW in put.column_names and (numbers := self._changes.rows[ROW].drop_null().to_pylist()):
            found = self._base.changed_since(self._base, sorted(numbers))
            if found is None:
                rows = self._base.scan(rows=True)
                gone = rows.filter(pc.is_in(rows[ROW], pa.array(numbers, pa.int64())))
            else:
                gone = found[0]
        else:
            gone = put.slice(0, 0)
        return gone.select(names), put.select(names)

    @cached_property
    def _overlay(self) -> Overlay:
        made = Overlay(self._base)
        made.stage(self._changes)
        return made

    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        return self._overlay.get(columns, keys, nulls=nulls, rows=rows)

    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        return self._overlay.scan(columns, rows=rows)

    def __len__(self) -> int:
        gone, came = self.difference
        return len(self._base) - int(gone.num_rows) + int(came.num_rows)


def _last_of_each(changes: Changes, key: Sequence[str]) -> Changes:
    """Returns the changes with the last of those that affect the same row."""
    rows = changes.rows
    if len(changes) < 2 or (not key and ROW not in rows.column_names):
        return changes
    names = list(key) or [ROW]
    numbered = rows.select(names).append_column("__at", pa.array(np.arange(rows.num_rows)))
    new = None
    if not key:
        new = numbered.filter(pc.is_null(numbered[ROW]))["__at"]
        numbered = numbered.filter(pc.is_valid(numbered[ROW]))
    last = numbered.group_by(names).aggregate([("__at", "max")])["__at_max"]
    if len(last) == numbered.num_rows:
        return changes
    places = np.sort(np.concatenate([last.to_numpy(), *([] if new is None else [new.to_numpy()])]))
    kept = pa.array(places)
    return Changes(rows.take(kept), None if changes.deleted is None else changes.deleted.take(kept))
