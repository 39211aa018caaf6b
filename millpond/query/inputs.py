"""Reads the rows of a table for a query."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from millpond import steps
from millpond.predicates import Predicate
from millpond.sql.resolve import Input
from millpond.sql.versions import words_of
from millpond.store.snapshot import StoreSnapshot


def rows_of(source: Input, snapshots: StoreSnapshot, where: Predicate | None) -> pa.Table:
    """Returns the rows of an input that is a table, as of a snapshot: at least all that match ``where``."""
    relation = source.relation
    name = relation.rows_of or relation.name
    with_rows = relation.rows_of is not None and not relation.schema.key
    if relation.at is None:
        snapshot, what = snapshots.snapshot(name), name
    else:
        snapshot, what = snapshots.at(name, relation.at), f"{name} {words_of(relation.at)}"
    read: Callable[[], pa.Table] = partial(snapshot.scan, rows=True) if with_rows else snapshot.scan
    if where is not None:
        read = partial(snapshot.filtered, where, rows=with_rows)
    return steps.timed(f"read table {what}", read)
