"""Defines how a column is stored in a block: numbers as they are, texts as codes, values without fixed width as Arrow
pieces.

Cells are written beyond the rows that readers see, and never again after that, so readers need no lock.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.records.columns import column as to_column
from millpond.records.outgoing import to_values
from millpond.tables._texts import Texts

Cells = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]
Pick = tuple[Any, npt.NDArray[np.int64]]
"""The cells of a block, and the requested ones among them, in ascending order."""

_WORD = (1 << 64) - 1
_LOOSE = 200
"""Approximate bytes of a nested value that is not yet in Arrow."""


class ColumnStore(ABC):
    """Defines the layout of one column in all blocks of a table. The memory for its cells belongs to the block."""

    nulls_apart = True
    """Whether a block stores separately which cells are NULL."""
    words = 1
    """How many words a cell has."""

    def __init__(self, dtype: pa.DataType):
        self.dtype = dtype

    @abstractmethod
    def room(self, capacity: int) -> Any:
        """Allocates the cells of a block."""

    def copied(self, room: Any, count: int, capacity: int) -> Any:
        """Copies the first ``count`` cells to a larger allocation."""
        larger = self.room(capacity)
        larger[:count] = room[:count]
        return larger

    def view(self, room: Any) -> Any:
        """Returns what single cells are read from and written to, by index."""
        return memoryview(room)

    @abstractmethod
    def write(self, room: Any, at: int, array: pa.Array) -> None:
        """Writes the values of the array to the cells from ``at`` on; NULLs may leave anything."""

    def put(self, view: Any, at: int, value: Any) -> None:
        """Writes one cell: a raw value of the type, a text as it is."""
        view[at] = value

    def get(self, view: Any, at: int) -> Any:
        """Returns one cell that is not NULL, for ``put``."""
        return view[at]

    def one(self, value: Any) -> pa.Array:
        """Returns one raw value as Arrow."""
        if value is None:
            return pa.nulls(1, self.dtype)
        room = self.room(1)
        self.put(self.view(room), 0, value)
        return self.plain(self.arrow(room, 0, 1, None))

    @abstractmethod
    def arrow(self, room: Any, start: int, end: int, valid: pa.Buffer | None) -> pa.Array:
        """Returns the cells as Arrow, texts as their codes; ``valid`` is the bitmap of those that are not NULL."""

    def pick(self, parts: Sequence[Pick], valid: pa.Buffer | None) -> pa.Array:
        """Returns the same as ``arrow``, for some cells of several blocks."""
        cells = np.concatenate([self._some(room, inside) for room, inside in parts])
        return self.arrow(cells, 0, sum(len(inside) for _, inside in parts), valid)

    def _some(self, room: Any, inside: npt.NDArray[np.int64]) -> Any:
        return room[inside]

    def plain(self, array: pa.Array) -> pa.Array:
        """Converts the result of ``arrow`` to an array of the column's type."""
        return array

    def nbytes(self) -> int:
        """Returns the bytes that the column uses in addition to the blocks."""
        return 0


class Fixed(ColumnStore):
    """Stores numbers, dates and times; long decimals as pairs of words."""

    def __init__(self, dtype: pa.DataType):
        super().__init__(dtype)
        words = dtype.bit_width // 64 if dtype.bit_width > 64 else 1
        if pa.types.is_floating(dtype):
            self._numpy = np.dtype(f"f{dtype.bit_width // 8}")
        else:
            self._numpy = np.dtype(f"i{dtype.bit_width // 8 // words}")
        self.words = words

    def room(self, capacity: int) -> Cells:
        return np.zeros(capacity * self.words, dtype=self._numpy)

    def copied(self, room: Cells, count: int, capacity: int) -> Cells:
        larger = self.room(capacity)
        larger[: count * self.words] = room[: count * self.words]
        return larger

    def write(self, room: Cells, at: int, array: pa.Array) -> None:
        data = array.buffers()[1]
        if data is None:
            return
        count, words = len(array) * self.words, self.words
        skip = array.offset * words * self._numpy.itemsize
        room[at * words : at * words + count] = np.frombuffer(data, self._numpy, count, skip)

    def put(self, view: Any, at: int, value: Any) -> None:
        if self.words == 1:
            view[at] = value
        else:
            low = value & _WORD
            view[2 * at] = low - (_WORD + 1) if low >> 63 else low
            view[2 * at + 1] = value >> 64

    def get(self, view: Any, at: int) -> Any:
        return view[at] if self.words == 1 else view[2 * at + 1] << 64 | view[2 * at] & _WORD

    def _some(self, room: Cells, inside: npt.NDArray[np.int64]) -> Cells:
        return room[inside] if self.words == 1 else room.reshape(-1, self.words)[inside].reshape(-1)

    def arrow(self, room: Cells, start: int, end: int, valid: pa.Buffer | None) -> pa.Array:
        data = pa.py_buffer(room[start * self.words : end * self.words])
        return pa.Array.from_buffers(self.dtype, end - start, [valid, data])


class ShortDecimals(ColumnStore):
    """Stores decimals of at most 18 digits, in one word each."""

    def room(self, capacity: int) -> Cells:
        return np.zeros(capacity, dtype=np.int64)

    def write(self, room: Cells, at: int, array: pa.Array) -> None:
        data = array.buffers()[1]
        if data is not None:
            words = np.frombuffer(data, np.int64, 2 * len(array), 16 * array.offset)
            room[at : at + len(array)] = words[::2]

    def arrow(self, room: Cells, start: int, end: int, valid: pa.Buffer | None) -> pa.Array:
        words = np.empty((end - start, 2), dtype=np.int64)
        words[:, 0] = room[start:end]
        np.right_shift(room[start:end], 63, out=words[:, 1])
        return pa.Array.from_buffers(self.dtype, end - start, [valid, pa.py_buffer(words)])


class Bools(ColumnStore):
    """Stores booleans, one byte each."""

    def room(self, capacity: int) -> Flags:
        return np.zeros(capacity, dtype=np.bool_)

    def write(self, room: Flags, at: int, array: pa.Array) -> None:
        room[at : at + len(array)] = flags_of(array)

    def arrow(self, room: Flags, start: int, end: int, valid: pa.Buffer | None) -> pa.Array:
        return pa.Array.from_buffers(self.dtype, end - start, [valid, bitmap(room[start:end])])


class Coded(ColumnStore):
    """Stores texts as codes; NULL is code 0."""

    nulls_apart = False

    def __init__(self, dtype: pa.DataType):
        super().__init__(dtype)
        self.texts = Texts()

    def room(self, capacity: int) -> Cells:
        return np.zeros(capacity, dtype=np.int32)

    def put(self, view: Any, at: int, value: str | None) -> None:
        view[at] = 0 if value is None else self.texts.code(value)

    def get(self, view: Any, at: int) -> str | None:
        return self.texts.text(view[at])

    def write(self, room: Cells, at: int, array: pa.Array) -> None:
        room[at : at + len(array)] = self.texts.encode(array)

    def one(self, value: str | None) -> pa.Array:
        if value is None:
            return pa.nulls(1, self.dtype)
        data = value.encode()
        offsets = pa.py_buffer(b"\x00\x00\x00\x00" + len(data).to_bytes(4, sys.byteorder))
        return pa.Array.from_buffers(self.dtype, 1, [None, offsets, pa.py_buffer(data)])

    def arrow(self, room: Cells, start: int, end: int, valid: pa.Buffer | None) -> pa.Array:
        return pa.Array.from_buffers(pa.int32(), end - start, [None, pa.py_buffer(room[start:end])])

    def plain(self, array: pa.Array) -> pa.Array:
        return self.texts.take(array)

    def nbytes(self) -> int:
        return self.texts.nbytes()


class Pieces(ColumnStore):
    """Stores nested values and bytes: a sequence of Arrow arrays, and values that were added one by one."""

    nulls_apart = False

    def room(self, capacity: int) -> PieceRoom:
        return PieceRoom(self.dtype)

    def copied(self, room: PieceRoom, count: int, capacity: int) -> PieceRoom:
        return room

    def view(self, room: PieceRoom) -> PieceRoom:
        return room

    def write(self, room: PieceRoom, at: int, array: pa.Array) -> None:
        room.write(at, array)

    def arrow(self, room: PieceRoom, start: int, end: int, valid: pa.Buffer | None) -> pa.Array:
        return room.arrow(start, end)

    def pick(self, parts: Sequence[Pick], valid: pa.Buffer | None) -> pa.Array:
        found = [room.arrow(0, int(inside[-1]) + 1).take(pa.array(inside)) for room, inside in parts]
        return found[0] if len(found) == 1 else pa.concat_arrays(found)


class PieceRoom:
    """Stores the cells of one block. What a failed write left behind is overwritten."""

    __slots__ = ("_dtype", "_lock", "_pieces", "_recent", "_written")

    def __init__(self, dtype: pa.DataType):
        self._dtype = dtype
        self._lock = Lock()
        self._pieces: list[pa.Array] = []
        self._written = 0
        self._recent: list[Any] = []

    @property
    def nbytes(self) -> int:
        return sum(int(p.nbytes) for p in list(self._pieces)) + _LOOSE * len(self._recent)

    def write(self, at: int, array: pa.Array) -> None:
        with self._lock:
            self._cut(at)
            self._pieces.append(array)
            self._written = at + len(array)

    def __setitem__(self, at: int, value: Any) -> None:
        with self._lock:
            if at != self._written + len(self._recent):
                self._cut(at)
            self._recent.append(value)

    def __getitem__(self, at: int) -> Any:
        return to_values(self.arrow(at, at + 1))[0]

    def arrow(self, start: int, end: int) -> pa.Array:
        with self._lock:
            if end > self._written:
                self._flush()
            if len(self._pieces) > 1:
                self._pieces = [pa.concat_arrays(self._pieces)]
            whole = self._pieces[0] if self._pieces else pa.array([], self._dtype)
        return whole.slice(start, end - start)

    def _flush(self) -> None:
        if self._recent:
            self._pieces.append(to_column(self._recent, self._dtype))
            self._written += len(self._recent)
            self._recent = []

    def _cut(self, at: int) -> None:
        self._flush()
        if at < self._written:
            self._pieces = [pa.concat_arrays(self._pieces).slice(0, at)]
            self._written = at


def flags_of(array: pa.BooleanArray) -> Flags:
    """Returns the values as bytes, NULL as False. Arrow's own conversion would load pandas first."""
    validity, bits = array.buffers()
    flags = _unpacked(bits, array)
    return flags & _unpacked(validity, array) if array.null_count else flags


def _unpacked(bits: pa.Buffer, array: pa.Array) -> Flags:
    if not len(array):
        return np.zeros(0, dtype=np.bool_)
    end = array.offset + len(array)
    values = np.unpackbits(np.frombuffer(bits, np.uint8), count=end, bitorder="little")
    return values[array.offset :].astype(np.bool_)


def bitmap(flags: Flags) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def store_of(dtype: pa.DataType) -> ColumnStore:
    """Returns how a column of the type is stored."""
    t = pa.types
    if t.is_boolean(dtype):
        return Bools(dtype)
    if t.is_string(dtype):
        return Coded(dtype)
    if t.is_decimal128(dtype) and dtype.precision <= 18:
        return ShortDecimals(dtype)
    if t.is_primitive(dtype) or t.is_decimal128(dtype):
        return Fixed(dtype)
    return Pieces(dtype)
