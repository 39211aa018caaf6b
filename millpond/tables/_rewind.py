"""Rolls a memory table back: removes what a change that failed half way has left behind.

Later changes do not affect a published version, so its rows can be rebuilt at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from millpond.errors import Error, StoreStopped
from millpond.records.keys import key_list
from millpond.tables._blocks import SIZE, Blocks, Slots
from millpond.tables._coldkeys import Keys
from millpond.tables._numbers import RowNumbers
from millpond.tables._versions import NEVER, Generation, Links, TableVersion


class Point(NamedTuple):
    """Contains the rows of a table, and the number of its next new row if it has no key."""

    table_version: TableVersion
    next: int


class Rebuilt(NamedTuple):
    """Contains the rows of a point, each in one slot."""

    generation: Generation
    blocks: Blocks
    died: Slots
    slots: int


def rebuilt(
    key: tuple[str, ...], point: Point, blocks: Blocks, keys: Keys, ease: Callable[[Blocks], None]
) -> Rebuilt:
    """Copies the rows of the point into the empty ``blocks``, and adds them to the empty index ``keys``. ``ease`` is
    called between the parts, to keep to a limit of memory.
    """
    table_version = point.table_version
    keep = table_version.died[: table_version.mark.slots] > table_version.mark.version
    kept = np.flatnonzero(keep)
    generation = Generation(keys, links=Links(np.full(max(1024, len(kept)), -1, dtype=np.int64)))
    ages = table_version.generation.ages
    generation.ages = None if ages is None else ages.moved(keep)
    for start in range(0, len(kept), SIZE):
        rows = table_version.blocks.take(kept[start : start + SIZE])
        blocks.append(start, rows)
        if key:
            found = key_list([rows.column(name) for name in key])
            keys.update(zip(found, range(start, start + len(found)), strict=True))
        ease(blocks)
    if not key:
        generation.numbers = RowNumbers()
        generation.numbers.add(len(kept), table_version.generation.numbers.of(kept))
        generation.numbers.next = point.next
    died = np.full(max(1024, len(kept)), NEVER, dtype=np.int64)
    return Rebuilt(generation, blocks, died, len(kept))


def broken(what: str, why: BaseException) -> Error:
    """Returns the error for readers and writers of a table that could not be restored."""
    return StoreStopped(
        f"{what} could not take a change, nor go back to what it was: {why!r}",
        hint="start the app again: with a state directory all that was committed is there",
    )
