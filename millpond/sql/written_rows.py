"""Finds what decides which rows a statement writes: its queries, and what stands around them."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.sql.checked import Checked, CheckedBlock, CheckedFold, CheckedRunnable
from millpond.sql.fold import RowFold
from millpond.sql.resolve import Resolved


def queries_of(checked: Checked) -> Iterator[Resolved]:
    yield from checked.queries
    if isinstance(checked, CheckedFold) and isinstance(checked.fold, RowFold):
        yield checked.fold.pairs
    for member in checked.members if isinstance(checked, CheckedBlock) else ():
        yield from queries_of(member)


def around_of(checked: Checked) -> tuple[object, ...]:
    """Returns what decides which rows a statement writes, beside its query."""
    s = checked.statement
    query = getattr(s, "query", None)
    misses = checked.misses if isinstance(checked, CheckedRunnable) else None
    members = checked.members if isinstance(checked, CheckedBlock) else ()
    return (
        getattr(query, "emit", None),
        getattr(checked, "form", None),
        (getattr(s, "errors_into", None) or "").lower(),
        misses is None,
        tuple(around_of(m) for m in members),
    )
