"""Converts rows of operators: tuples with how often each comes or goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from millpond.records.tuples import Row, rows_of, table_of

__all__ = ["Delta", "Row", "by_key", "net", "rows_of", "table_of"]
Delta = list[tuple[Row, int]]
"""Rows with their weights: +1 for one that comes, -1 for one that goes; or how often a row is there."""


def by_key(table: pa.Table, width: int) -> Iterator[tuple[Row, Row]]:
    """Returns the rows of a table in two parts: the first columns, and the others."""
    names = table.column_names
    return zip(rows_of(table, names[:width]), rows_of(table, names[width:]), strict=True)


def net(delta: Iterable[tuple[Row, int]]) -> Delta:
    """Returns the rows that remain when what comes and what goes cancel each other out."""
    found: dict[Row, int] = {}
    for row, weight in delta:
        found[row] = found.get(row, 0) + weight
    return [(row, weight) for row, weight in found.items() if weight]
