"""Upserts many rows of a memory table whose key is one integer column, without a hash of each key."""

from __future__ import annotations

import pyarrow as pa

from millpond import faults
from millpond.tables._lagging_keys import LaggingKeys, distinct_integers
from millpond.tables._storage import RowStorage

MANY = 4_096
"""Fewer rows are added to the index of keys at once."""


def upsert_integers(storage: RowStorage, rows: pa.Table, commit: int) -> bool:
    """Adds the rows, or those that replace others, if their keys are different, dense integers; else returns False,
    having changed nothing.
    """
    if len(storage.key) > 1 or rows.num_rows < MANY or storage.limit.most is not None:
        return False
    column, slots, generation = storage.key[0], storage.mark.slots, storage.generation
    keys = distinct_integers(rows.column(column), slots)
    if keys is None:
        return False
    before = generation.newest_of_ints(keys, column, storage.blocks, slots)
    if before is None:
        return False
    ended = storage.now.alive(before)
    storage.blocks.append(slots, rows)
    faults.reach("table: appended")
    first = storage.link(before, ended)
    storage.live.end = 0
    faults.reach("table: linked")
    generation.point_later(column, storage.blocks, first, first + len(keys))
    newest = generation.newest
    if storage.publication is None and isinstance(newest, LaggingKeys):
        newest.read_by(storage.live)
    if storage.hot.active:
        storage.hot.forget_all(keys.tolist())
    faults.reach("table: pointed")
    storage.publish(len(keys), len(ended), commit)
    faults.reach("table: published")
    storage.compact()
    return True
