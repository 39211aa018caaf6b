"""Reads blocks of rows from disk, and caches recently read ones in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.tables._block import SIZE, Block
from millpond.tables._columns import ColumnStore, store_of
from millpond.tables._rows import MakeReader, Row
from millpond.tables._shelf import Shelf


class Cold:
    """Represents a full block whose rows are on disk. It reads like the block: single rows from a copy that is cached
    for a while, columns from the file.
    """

    __slots__ = ("_copies", "_file", "_make_row", "_schema", "size")
    capacity = SIZE
    plain = False

    def __init__(self, block: Block, schema: pa.Schema, copies: Copies):
        """Writes the block. Raises OSError."""
        columns = [block.column(at, 0, SIZE) for at in range(len(schema))]
        self._file = copies.shelf.write(pa.RecordBatch.from_arrays(columns, schema=schema))
        self._schema = schema
        self._make_row = block.make_row
        self._copies = copies
        self.size = self._file.size

    def thawed(self) -> Block:
        """Returns a new block with the rows."""
        block = Block([store_of(f.type) for f in self._schema], self._make_row, SIZE)
        block.write(0, self._file.read())
        return block

    @property
    def _block(self) -> Block:
        return self._copies.of(self)

    def row(self, within: int) -> Row:
        row: Row = self._block.row(within)
        return row

    def reader(self, make: MakeReader) -> Callable[..., Any]:
        return self._block.reader(make)

    @property
    def readers(self) -> dict[Any, Callable[..., Any]]:
        return self._block.readers

    @property
    def stores(self) -> Sequence[ColumnStore]:
        return self._block.stores

    @property
    def cells(self) -> list[Any]:
        return self._block.cells

    @property
    def room(self) -> list[Any]:
        return self._block.room

    @property
    def valid(self) -> list[npt.NDArray[np.bool_] | None]:
        return self._block.valid

    def column(self, at: int, start: int, end: int, keep: pa.Array | None = None) -> pa.Array:
        array = self._file.read([at]).column(0).combine_chunks().slice(start, end - start)
        return array if keep is None else array.filter(keep)


class Copies:
    """Caches the spilled blocks of one table that were read last, up to ``keep`` bytes."""

    def __init__(self, shelf: Shelf, keep: int):
        self.shelf = shelf
        self._keep = keep
        self._blocks: OrderedDict[Cold, tuple[Block, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def of(self, cold: Cold) -> Block:
        """Returns the copy of a block, made if necessary."""
        with self._lock:
            found = self._blocks.get(cold)
            if found is not None:
                self._blocks.move_to_end(cold)
                return found[0]
        block = cold.thawed()
        size = block.nbytes(with_stores=True)
        with self._lock:
            if cold not in self._blocks:
                self._blocks[cold] = (block, size)
                self._bytes += size
            while self._bytes > self._keep and len(self._blocks) > 1:
                self._bytes -= self._blocks.popitem(last=False)[1][1]
        return block

    def nbytes(self) -> int:
        return self._bytes

    def forget(self) -> int:
        """Drops the copies; returns the bytes that they had."""
        with self._lock:
            freed, self._bytes = self._bytes, 0
            self._blocks.clear()
        return freed
