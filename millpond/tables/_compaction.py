"""Rewrites the rows of a memory table: without those that no commit sees, or with additional columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from millpond import faults
from millpond.records.cast import conform
from millpond.tables._blocks import SIZE, Blocks, Slots
from millpond.tables._limit import Limit
from millpond.tables._versions import NEVER, Generation, Mark, TableVersion
from millpond.types import Schema


class Compacted(NamedTuple):
    """Contains the remaining rows, in new slots, and the commits by these slots."""

    generation: Generation
    blocks: Blocks
    died: Slots
    marks: list[Mark]


def compacted(
    now: TableVersion, marks: Sequence[Mark], blocks: Blocks, limit: Limit, ease: Callable[[Blocks], None]
) -> Compacted:
    """Copies the rows that one of the commits sees into ``blocks``, which are empty."""
    mark = now.mark
    died = now.died[: mark.slots]
    keep = died > marks[0].version
    kept = np.flatnonzero(keep)
    # Part by part if memory is limited: the old rows are on disk.
    limit.ease(now.blocks, limit.most or 0, mark.slots)
    step = len(kept) if limit.most is None else SIZE
    for start in range(0, len(kept), max(1, step)):
        blocks.append(start, now.blocks.take(kept[start : start + step]))
        ease(blocks)
    kept_before = np.concatenate(([0], np.cumsum(keep)))
    moved = [Mark(m.commit, m.version, int(kept_before[m.slots]), m.alive) for m in marks]
    faults.reach("table: copied")
    generation = now.generation.kept(keep)
    generation.replaced = limit.spilled_array(generation.replaced, -1)
    return Compacted(generation, blocks, limit.spilled_array(died[keep], NEVER), moved)


class Widened(NamedTuple):
    """Contains the same rows with additional columns."""

    generation: Generation
    blocks: Blocks
    died: Slots


def widened(now: TableVersion, schema: Schema, what: str) -> Widened:
    """Copies all rows, with NULL in the missing columns. Readers of the old ones keep their indexes, which know the
    places of columns.
    """
    slots = now.mark.slots
    blocks = Blocks(schema.arrow())
    blocks.append(0, conform(schema, now.blocks.take(np.arange(slots)), what=what))
    generation = now.generation.kept(np.ones(slots, dtype=np.bool_))
    return Widened(generation, blocks, now.died[:slots].copy())
