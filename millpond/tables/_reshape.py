"""Gives the rows of a memory table other columns. The cells of columns that stay are shared, not copied."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from millpond.alterations import AddedColumn, RenamedColumn, RetypedColumn, TableChange
from millpond.tables._blocks import SIZE, Blocks, Slots, Source
from millpond.tables._versions import Generation, TableVersion
from millpond.types import Schema


class Reshaped(NamedTuple):
    """Contains the same rows with other columns."""

    generation: Generation
    blocks: Blocks
    died: Slots


class MovedKeys(dict[Any, int]):
    """Represents the key index of a table whose place another one has taken: it sends readers to the general path."""

    def get(self, key: Any, default: Any = None) -> int:
        return -2


def sources_of(before: Schema, after: Schema, change: TableChange) -> list[Source]:
    """Returns where each column comes from; those that ``before`` does not have are NULL."""
    names = [name.lower() for name in before.names]
    renamed = {change.new.lower(): change.old.lower()} if isinstance(change, RenamedColumn) else {}
    found: list[Source] = []
    for column in after:
        name = renamed.get(column.name.lower(), column.name.lower())
        if isinstance(change, AddedColumn) and name == change.name.lower():
            found.append(change.value)
        elif isinstance(change, RetypedColumn) and name == change.name.lower():
            found.append((names.index(name), change.type))
        else:
            found.append(names.index(name) if name in names else pa.nulls(1, column.type))
    return found


def reshaped(now: TableVersion, before: Schema, after: Schema, sources: list[Source]) -> Reshaped:
    """Returns the rows with the columns of ``after``. Snapshots of the old ones stay as they are; nobody may write to
    those any more.
    """
    old = now.generation
    generation = Generation(old.all_keys(), old.numbers, old.links, admit=old.admit, ages=old.ages)
    if before.key == after.key:
        generation.dense = old.dense
    places = {n.lower(): at for at, n in enumerate(before.names)}
    stay = {
        name.lower() for at, name in enumerate(after.names) if places.get(name.lower()) == at == sources[at]
    }
    for columns, index in list(old.others.items()):
        if all(name.lower() in stay for name in columns):
            generation.others[columns] = index
    return Reshaped(generation, now.blocks.reshaped(after.arrow(), sources, now.mark.slots), now.died)


def copied(now: TableVersion, schema: Schema, sources: list[Source], blocks: Blocks) -> Reshaped:
    """Copies the rows into empty ``blocks``, part by part: the way of a table whose rows may be on disk."""
    slots = now.mark.slots
    fields = schema.arrow()
    for start in range(0, slots, SIZE):
        rows = now.blocks.take(np.arange(start, min(start + SIZE, slots)))
        arrays = [_array(rows, source) for source in sources]
        blocks.append(start, pa.Table.from_arrays(arrays, schema=fields))
    generation = now.generation.kept(np.ones(slots, dtype=np.bool_))
    return Reshaped(generation, blocks, now.died[:slots].copy())


def _array(rows: pa.Table, source: Source) -> pa.ChunkedArray:
    if isinstance(source, int):
        return rows.column(source)
    if isinstance(source, tuple):
        return rows.column(source[0]).cast(source[1])
    return pa.chunked_array([pa.repeat(source[0], rows.num_rows)])
