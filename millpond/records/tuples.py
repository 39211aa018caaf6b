"""Converts Arrow tables to rows that are tuples, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]
NAN = float("nan")
"""The only NaN in rows: it is equal to itself, as it is in SQL."""


def rows_of(table: pa.Table, names: Sequence[str]) -> list[Row]:
    """Returns columns of a table as rows."""
    if not names:
        return [()] * table.num_rows
    columns = [_values(table.column(name)) for name in names]
    return list(zip(*columns, strict=True))


def table_of(rows: Sequence[Row], names: Sequence[str], types: Sequence[pa.DataType]) -> pa.Table:
    """Returns rows as a table."""
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = [pa.array(list(c), t) for c, t in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, names=list(names))


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any]
    if column.null_count or not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        values = column.to_pylist()
    else:
        values = column.to_numpy().tolist()
    if pa.types.is_floating(column.type):
        return [NAN if v is not None and v != v else v for v in values]
    return values
