"""Converts rows of operators: tuples with how often each comes or goes."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.records.tuples import Row, rows_of, table_of

__all__ = ["Delta", "Row", "net", "rows_of", "table_of"]
Delta = list[tuple[Row, int]]
"""Rows with their weights: +1 for one that comes, -1 for one that goes; or how often a row is there."""


def net(delta: Iterable[tuple[Row, int]]) -> Delta:
    """Returns the rows that remain when what comes and what goes cancel each other out."""
    found: dict[Row, int] = {}
    for row, weight in delta:
        found[row] = found.get(row, 0) + weight
    return [(row, weight) for row, weight in found.items() if weight]
