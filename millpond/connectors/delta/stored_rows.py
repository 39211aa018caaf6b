"""Returns rows as the files of a Delta table have them, and the condition by which a merge finds them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.delta.client import quoted
from millpond.connectors.delta.dataset import is_pruned
from millpond.connectors.delta.layer import plain
from millpond.types import whole


def stored(rows: pa.Table, names: Sequence[str], key: Collection[str]) -> pa.Table:
    """Returns rows with the columns ``names``, spelled and typed as in the files."""
    given = {n.lower(): n for n in rows.column_names}
    keys = {k.lower() for k in key}
    columns = {}
    for name in names:
        values = rows[given[name.lower()]]
        if pa.types.is_duration(values.type):
            values = pa.chunked_array([c.view(pa.int64()) for c in values.chunks], pa.int64())
        elif name.lower() in keys:
            values = plain(values)
        columns[name] = values
    return pa.table(columns)


def same_key(rows: pa.Table, names: Sequence[str], key: Collection[str], *, null_keys: bool) -> str:
    """Returns the condition of a merge. It has the range of the keys as literals: files outside are left alone."""
    keys = {k.lower() for k in key}
    parts = []
    for name in names:
        if name.lower() in keys:
            equal = "IS NOT DISTINCT FROM" if null_keys else "="
            parts.append(f"(t.{quoted(name)} {equal} s.{quoted(name)})")
            if (within := _range(name, rows[name])) is not None:
                parts.append(within)
    return " AND ".join(parts)


def _range(name: str, values: pa.ChunkedArray) -> str | None:
    if not is_pruned(values.type) or values.null_count or not len(values):
        return None
    ends = pc.min_max(whole(values))
    low, high = (_literal(ends[end].as_py(), values.type) for end in ("min", "max"))
    return f"(t.{quoted(name)} >= {low} AND t.{quoted(name)} <= {high})"


def _literal(value: object, dtype: pa.DataType) -> str:
    if pa.types.is_integer(dtype):
        return str(value)
    text = "'" + str(value).replace("'", "''") + "'"
    return f"CAST({text} AS DATE)" if pa.types.is_date(dtype) else text
