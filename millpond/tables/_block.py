"""Stores a block of rows in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.tables._columns import ColumnStore, bitmap, flags_of
from millpond.tables._rows import MakeReader

SHIFT = 16
SIZE = 1 << SHIFT
MASK = SIZE - 1
_KEPT_READERS = 256
Cells = tuple[Any, npt.NDArray[np.bool_] | None]
"""The cells of a column in a block, and which of them are not NULL; None if all are."""


def _nothing() -> None:
    return None


class Block:
    """Stores up to 65,536 rows. ``row`` builds the record of one of them. It is replaced when a column gets its first
    NULL, before readers see that row, and so are the ``readers``, functions that others cache here. ``cells`` are the
    single cells by column; a row of a ``plain`` block consists of nothing else.
    """

    __slots__ = (
        "capacity",
        "cells",
        "make_row",
        "plain",
        "readers",
        "room",
        "row",
        "shown",
        "stores",
        "valid",
    )

    def __init__(
        self,
        stores: Sequence[ColumnStore],
        make_row: MakeReader,
        capacity: int,
        old: Block | None = None,
        cells: Sequence[Cells] | None = None,
    ):
        """Allocates the cells, with those of the ``old`` block, which is smaller; or takes ``cells`` that exist."""
        self.stores = stores
        self.make_row = make_row
        self.capacity = capacity
        self.shown: Callable[[], Any] = _nothing
        """Returns the columns that a reader has made of it, while that reader exists."""
        self.room: list[Any] = [s.room(capacity) for s in stores] if cells is None else [c[0] for c in cells]
        self.valid: list[npt.NDArray[np.bool_] | None] = [None] * len(stores)
        if cells is not None:
            self.valid = [c[1] for c in cells]
        if old is not None:
            count = old.capacity
            self.room = [s.copied(r, count, capacity) for s, r in zip(stores, old.room, strict=True)]
            for at, flags in enumerate(old.valid):
                if flags is not None:
                    self._allow_nulls(at)[:count] = flags
        self._renew()

    def set_valid(self, column: int, start: int, flags: npt.NDArray[np.bool_]) -> None:
        """Records which of the cells from ``start`` on are not NULL."""
        valid = self.valid[column]
        if valid is None:
            valid = self._allow_nulls(column)
            self._renew()
        valid[start : start + len(flags)] = flags

    def write(self, start: int, rows: pa.Table) -> None:
        """Writes rows to the cells from ``start`` on."""
        for at, (store, column) in enumerate(zip(self.stores, rows.columns, strict=True)):
            begin = start
            for chunk in column.chunks:
                store.write(self.room[at], begin, chunk)
                if store.nulls_apart and (chunk.null_count or self.valid[at] is not None):
                    self.set_valid(at, begin, flags_of(chunk.is_valid()))
                begin += len(chunk)

    def column(self, at: int, start: int, end: int, keep: pa.Array | None = None) -> pa.Array:
        """Returns the cells of a column from ``start`` up to ``end``; ``keep`` is a mask over them."""
        valid = self.valid[at]
        shown = None if valid is None else valid[start:end]
        bits = None if shown is None or shown.all() else bitmap(shown)
        array = self.stores[at].arrow(self.room[at], start, end, bits)
        return self.stores[at].plain(array if keep is None else array.filter(keep))

    def nbytes(self, *, with_stores: bool = False) -> int:
        """Returns the bytes of its cells, and of what its stores contain in addition."""
        flags = sum(int(v.nbytes) for v in self.valid if v is not None)
        stores = sum(s.nbytes() for s in self.stores) if with_stores else 0
        return flags + stores + sum(int(room.nbytes) for room in self.room)

    def _allow_nulls(self, column: int) -> npt.NDArray[np.bool_]:
        valid = self.valid[column] = np.ones(self.capacity, dtype=np.bool_)
        return valid

    def _renew(self) -> None:
        self.cells = [s.view(r) for s, r in zip(self.stores, self.room, strict=True)]
        flags = [None if v is None else v.data for v in self.valid]
        self.row = self.make_row(self.cells, flags, self.stores)
        self.plain = all(v is None for v in self.valid) and all(s.words == 1 for s in self.stores)
        # Last: a reader that is made of the earlier cells goes into the old dict.
        self.readers: dict[Any, Callable[..., Any]] = {}

    def reader(self, make: MakeReader) -> Callable[..., Any]:
        """Returns the function that ``make`` creates for this block."""
        readers = self.readers
        found = readers.get(make)
        if found is None:
            if len(readers) >= _KEPT_READERS:
                readers.clear()
            valid = [None if v is None else v.data for v in self.valid]
            found = readers[make] = make(self.cells, valid, self.stores)
        return found
