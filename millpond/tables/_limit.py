"""Implements ``max_memory``: limits what a table may use, and chooses what spills to disk.

Rows, keys and indexes are counted. Blocks of rows spill, the oldest first, and keys, all but the recent ones; the
versions of rows are in memory-mapped files. Indexes stay in memory.
"""

from __future__ import annotations

import logging
import mmap
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.changes import Changes
from millpond.errors import TableFull
from millpond.options import Option
from millpond.records.keys import average_size
from millpond.tables._blocks import SIZE, Blocks, Slots
from millpond.tables._cold import Copies
from millpond.tables._coldkeys import ColdKeys, Keys, is_integer_key
from millpond.tables._shelf import Shelf
from millpond.tables._versions import CommitRecord, Generation, grown

LIMIT_OPTIONS = (
    Option(
        "max_memory",
        "size",
        "The memory that rows, keys and indexes may use. Beyond it the oldest rows and keys spill to disk.",
        live=True,
    ),
    Option(
        "on.full",
        "choice",
        "At max_memory, spill: rows go to disk. error: the write fails and changes nothing.",
        default="spill",
        choices=("spill", "error"),
    ),
    Option(
        "spill.path",
        "text",
        "The directory for rows beyond max_memory; by default one in the state directory. It is "
        "emptied when the app ends.",
    ),
    Option(
        "compression",
        "choice",
        "How rows beyond max_memory are compressed.",
        default="lz4",
        choices=("none", "lz4", "zstd"),
    ),
)

LOOK_EVERY = 1024
"""Single rows after which the limit is checked."""
_SHARE = 4
"""Recent keys use at most one of this many parts."""
_ENTRY = 160
"""Bytes of an entry of the key index in addition to its key: its place in the dict, and a slot number."""

_log = logging.getLogger(__name__)


class Limit:
    """Limits a table to ``most`` bytes, or None."""

    def __init__(self, what: str, values: Mapping[str, Any], home: Path | None):
        self.most: int | None = values.get("max_memory")
        self._what = what
        self.shelf: Shelf | None = None
        self.copies: Copies | None = None
        self.enforced = True
        if self.most is not None and values.get("on.full") != "error":
            given = values.get("spill.path")
            parent = Path(given) if given else None if home is None else home / "spill"
            self.shelf = Shelf(parent, str(values.get("compression") or "lz4"))
            self.copies = Copies(self.shelf, self.most // 8)

    def change(self, most: int) -> None:
        """Gives a table that has a limit another one. The shares of keys and copies stay until the next start."""
        if self.most is not None:
            self.most = most

    def keys(self, types: Sequence[pa.DataType | None], null_keys: bool) -> Keys:
        """Returns an index of keys of these types that respects the limit."""
        if self.most is None or self.shelf is None or not types:
            return {}
        return ColdKeys(self.shelf, self.most // _SHARE, integers=is_integer_key(types, null_keys))

    def grown(self, array: Slots, size: int, fill: int) -> Slots:
        """Grows an array like ``_versions.grown``; large arrays are in a file."""
        if self.shelf is None or size <= max(len(array), SIZE):
            return grown(array, size, fill)
        try:
            larger = self.shelf.slots(max(size, len(array) * 3 // 2), fill)
        except OSError as e:
            self._warn(e)
            return grown(array, size, fill)
        larger[: len(array)] = array
        return larger

    def spilled_array(self, array: Slots, fill: int) -> Slots:
        """Returns the same numbers, in a file if they are many."""
        if self.shelf is None or len(array) <= SIZE:
            return array
        other = self.grown(array[:0], len(array), fill)
        other[: len(array)] = array
        return other

    def coming(self, changes: Changes, keys: int) -> tuple[int, int]:
        """Returns the bytes of versions and of so many new keys, and of rows, that changes add."""
        rows = int(changes.rows.nbytes)
        if self.shelf is None:
            return len(changes) * 16 + keys * _ENTRY, rows
        return min(keys * _ENTRY, (self.most or 0) // _SHARE), rows

    def _warn(self, error: OSError) -> None:
        _log.warning("%s cannot spill its rows: %s", self._what, error)

    def admit(self, blocks: Blocks, mark: CommitRecord, keys: Keys, fixed: int, coming: int) -> None:
        """Frees memory for ``coming`` bytes of rows in addition to ``fixed`` bytes of keys and indexes. Raises
        TableFull before anything has changed.
        """
        if self.most is None or not self.enforced:
            return
        over = fixed + blocks.nbytes() + coming - self.most
        if over <= 0:
            return
        if self.shelf is None or self.copies is None:
            raise TableFull(
                f"{self._what} is full: the write would take {over} bytes more than max_memory ({self.most} bytes)",
                hint="delete rows, raise max_memory, or let rows go to the disk: 'on.full' = 'spill'",
            )
        over -= self.copies.forget()
        try:
            while over > 0 and (freed := blocks.spill(mark.slots)):
                over -= freed
            if over > 0 and isinstance(keys, ColdKeys):
                fixed -= keys.spill()
        except OSError as e:
            raise TableFull(
                f'{self._what} is full, and its rows cannot be spilled to "{self.shelf.path}": {e.strerror or e}',
                hint="make room on the disk, or name another 'spill.path'",
            ) from e
        if fixed > self.most:
            raise TableFull(
                f"{self._what} is full: its indexes alone would take {fixed} bytes, and they cannot be spilled;"
                f" max_memory is {self.most} bytes",
                hint="raise max_memory, or drop an index",
            )

    def has_room(self, blocks: Blocks, fixed: int) -> bool:
        """Returns whether ``fixed`` bytes of keys and indexes are within the limit, with rows spilled for them."""
        most = self.most or 0
        return fixed <= most and (self.shelf is not None or fixed + blocks.nbytes() <= most)

    def no_room(self, what: str) -> TableFull:
        return TableFull(
            f"{self._what} has no room for {what}: with it keys and indexes would pass max_memory ({self.most} bytes)",
            hint="raise max_memory",
        )

    def ease(self, blocks: Blocks, fixed: int, end: int) -> None:
        """Spills blocks below ``end`` while there is too much in memory. A full disk is left to the next write."""
        if self.most is None or self.shelf is None:
            return
        over = fixed + blocks.nbytes() - self.most
        try:
            while over > 0 and (freed := blocks.spill(end)):
                over -= freed
        except OSError as e:
            self._warn(e)

    def close(self) -> None:
        if self.shelf is not None and self.copies is not None:
            self.copies.forget()
            self.shelf.close()


def fixed_bytes(generation: Generation, died: Slots, *, as_is: bool = False) -> int:
    """Returns the bytes of keys, indexes and versions; ``as_is`` without keys that a lookup would add first."""
    keys = generation.present_keys() if as_is else generation.all_keys()
    if isinstance(keys, ColdKeys):
        total = keys.nbytes()
    else:
        total = sys.getsizeof(keys) + len(keys) * (32 + average_size(keys))
    total += sum(index.nbytes() for index in list(generation.others.values())) + generation.dense.nbytes()
    return total + _resident(died) + _resident(generation.replaced) + generation.numbers.nbytes()


def _resident(slots: Slots) -> int:
    """Returns the bytes of numbers that are not in a file."""
    return 0 if isinstance(slots.base, mmap.mmap) else int(slots.nbytes)
