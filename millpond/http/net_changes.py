"""Combines the changes of several commits: each key once, in its last state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes
from millpond.query.row_matches import aligned
from millpond.types import Schema


@dataclass(frozen=True, slots=True)
class Netted:
    """Contains the net changes: ``rows`` exist now, the keys ``deleted`` do not. If they are ``unknown``,
    rows of a table without a key were changed or deleted.
    """

    rows: pa.Table
    deleted: pa.Table
    unknown: bool = False

    @property
    def size(self) -> int:
        return int(self.rows.num_rows + self.deleted.num_rows)


def netted(changes: Sequence[Changes], schema: Schema) -> Netted:
    """Returns the net changes of one commit, or of several successive ones."""
    wanted = schema.arrow()
    key = list(schema.key)
    nothing = pa.schema([wanted.field(k) for k in key]).empty_table()
    if not key:
        return _of_rows(changes, wanted, nothing)
    rows = pa.concat_tables([aligned(c.rows, wanted) for c in changes])
    flags = [
        pa.array([False] * len(c), pa.bool_()) if c.deleted is None else c.deleted.fill_null(False)
        for c in changes
    ]
    gone = pa.chunked_array(flags, pa.bool_())
    if len(rows) > 1:
        last = _last(rows.select(key))
        if last is not None:
            rows, gone = rows.take(last), gone.take(last)
    if not pc.any(gone).as_py():
        return Netted(rows, nothing)
    return Netted(rows.filter(pc.invert(gone)), rows.filter(gone).select(key))


def _of_rows(changes: Sequence[Changes], wanted: pa.Schema, nothing: pa.Table) -> Netted:
    for change in changes:
        numbered = ROW in change.rows.column_names and pc.any(pc.is_valid(change.rows[ROW])).as_py()
        if change.deleted is not None or numbered:
            return Netted(wanted.empty_table(), nothing, unknown=True)
    return Netted(pa.concat_tables([aligned(c.rows, wanted) for c in changes]), nothing)


def _last(keys: pa.Table) -> pa.Array | None:
    """Returns the index of the last row of each key, in order; None if every key occurs once."""
    names = keys.column_names
    numbered = keys.append_column(ROW, pa.array(range(keys.num_rows), pa.int64()))
    found = numbered.group_by(names, use_threads=False).aggregate([(ROW, "max")]).column(f"{ROW}_max")
    return None if len(found) == keys.num_rows else found.take(pc.sort_indices(found))
