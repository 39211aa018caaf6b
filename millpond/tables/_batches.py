"""Applies batches of changed rows to the storage of a memory table."""

from __future__ import annotations

from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from millpond import faults
from millpond.changes import ROW, Changes
from millpond.tables._effective_rows import last_of_each
from millpond.tables._integer_keys import upsert_integers
from millpond.tables._storage import RowStorage


def apply_batch(storage: RowStorage, changes: Changes, commit: int) -> None:
    """Applies changes that were checked, as one commit. If it raises, the caller undoes what was done."""
    if storage.key:
        _upsert(storage, changes.rows, changes.deleted, commit)
    elif len(changes.rows.schema) > len(storage.schema):
        _replace(storage, changes.rows, changes.deleted, commit)
    elif len(changes):
        storage.blocks.append(storage.mark.slots, changes.rows)
        faults.reach("table: appended")
        storage.generation.numbers.add(len(changes))
        storage.publish(len(changes), 0, commit)


def _upsert(storage: RowStorage, rows: pa.Table, deleted: pa.BooleanArray | None, commit: int) -> None:
    if deleted is None and upsert_integers(storage, rows, commit):
        return
    rows, keys, gone, last = last_of_each(storage.key, rows, deleted)
    if keys and not storage.mark.slots and gone is None:
        _load(storage, rows, last, commit)
        return
    generation = storage.generation
    before = generation.newest_slots(keys)
    ended = storage.now.alive(before)
    put = keys
    if gone is not None:
        stay = ~gone
        rows = rows.filter(pa.array(stay))
        put = list(compress(keys, stay.tolist()))
    if not put and not len(ended):
        return
    storage.blocks.append(storage.mark.slots, rows)
    faults.reach("table: appended")
    first = storage.link(before if gone is None else before[~gone], ended)
    storage.live.end = 0
    faults.reach("table: linked")
    generation.point(put, range(first, first + len(put)))
    if gone is not None:
        there = gone & (before >= 0)
        dropped = list(compress(keys, there.tolist()))
        generation.point(dropped, (-2 - before[there]).tolist())
        if storage.compaction is not None:
            storage.compaction.deleted(dropped)
    if storage.hot.active:
        storage.hot.forget_all(keys)
    faults.reach("table: pointed")
    storage.publish(len(put), len(ended), commit)
    faults.reach("table: published")
    storage.compact()


def _load(storage: RowStorage, rows: pa.Table, keys: dict[Any, int], commit: int) -> None:
    """Loads the first rows of a table: they replace nothing, and ``keys`` maps to their slots."""
    generation = storage.generation
    storage.blocks.append(0, rows)
    generation.replaced = storage.limit.grown(generation.replaced, len(keys), -1)
    generation.newest.update(keys)
    storage.publish(len(keys), 0, commit)


def _replace(storage: RowStorage, rows: pa.Table, deleted: pa.BooleanArray | None, commit: int) -> None:
    """Replaces rows of a table without a key, by their numbers; those that have none are new."""
    known = storage.generation.numbers
    given = rows.column(ROW).combine_chunks()
    rows = rows.drop_columns(ROW)
    numbers, stay = known.given(given.fill_null(-1).to_numpy(zero_copy_only=False).copy())
    before = known.newest(numbers)
    ended = storage.now.alive(before[stay])
    if deleted is not None:
        stay &= ~np.asarray(deleted)
        known.take(int(numbers.max(initial=-1)))
    count = int(np.count_nonzero(stay))
    if count or len(ended):
        storage.blocks.append(storage.mark.slots, rows.filter(pa.array(stay)))
        storage.link(before[stay], ended)
        known.add(count, numbers[stay])
        storage.publish(count, len(ended), commit)
        storage.compact()
