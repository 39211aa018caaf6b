"""Reads the packets of a result, many at a time, and finds the cells of whole columns in them.

The server sends each row as a packet: its length in three bytes, a number, and for each column a length and the text.
Where a packet begins depends on the one before; that is the only step for each row. The cells of a column are found for
all rows at once, and copied out of the packets by Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

Read = Callable[[int], bytes]
"""Returns as many bytes as there are, at least one, and not more than requested; none at the end of the connection."""
_CHUNK = 1 << 20
_MOST = 4 << 20
"""Bytes of packets that are stored before their rows are given on."""
_PART = 0xFFFFFF
"""The length of a packet that another one continues."""
_NULL = 251
_WIDE = {252: 2, 253: 3, 254: 8}
"""The bytes of a length, by the byte before it."""


@dataclass(frozen=True, slots=True)
class Block:
    """Contains rows: where each begins in the bytes."""

    data: bytes
    starts: np.ndarray

    def columns(self, count: int) -> list[pa.Array]:
        """Returns the cells of each column, as binary."""
        raw, at = np.frombuffer(self.data, np.uint8), self.starts
        found = []
        for _ in range(count):
            lengths, begin, null = _lengths(raw, at)
            at = begin + lengths
            found.append(_cells(self.data, begin, at, null))
        return found


def _lengths(raw: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Returns the lengths of cells, where they begin, and which are NULL."""
    first = raw[at]
    lengths, begin = first.astype(np.int64), at + 1
    if not len(first) or first.max() < _NULL:
        return lengths, begin, None
    null = first == _NULL
    lengths[null] = 0
    for mark, width in _WIDE.items():
        which = np.flatnonzero(first == mark)
        if len(which):
            parts = raw[at[which, None] + np.arange(1, width + 1)].astype(np.int64)
            lengths[which] = (parts << (8 * np.arange(width))).sum(axis=1)
            begin[which] += width
    return lengths, begin, null if null.any() else None


def _cells(data: bytes, begin: np.ndarray, end: np.ndarray, null: np.ndarray | None) -> pa.Array:
    """Returns the cells between places: every other one of all that lies between two of them."""
    count = len(begin)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2], offsets[1::2] = begin, end
    every = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return every.take(pa.array(np.arange(0, 2 * count, 2), mask=null))


class Packets:
    """Reads the rows of a result. ``last`` is the packet after them, once they are read."""

    def __init__(self, read: Read):
        self.last: bytes | None = None
        self._read = read
        self._bytes = bytearray()
        self._at = 0
        """The place after the last whole packet."""
        self._starts: list[int] = []

    def blocks(self, rows: int) -> Iterator[Block]:
        """Yields the rows, at most so many at once."""
        while self.last is None:
            large = self._find()
            if self._starts and self._ends(self._starts[-1], self._at):
                self.last = bytes(self._bytes[self._starts.pop() : self._at])
            if large or self.last is not None or len(self._starts) >= rows or self._at >= _MOST:
                yield from self._take(rows)
            if large:
                packet = self._joined()
                if self._is_end(packet):
                    self.last = packet
                else:
                    yield Block(packet, np.zeros(1, np.int64))
            elif self.last is None:
                self._more()

    def _find(self) -> bool:
        """Finds the packets that have arrived; returns whether one follows that consists of several."""
        data, at, size_of_all = self._bytes, self._at, len(self._bytes)
        add = self._starts.append
        while at + 4 <= size_of_all:
            size = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            end = at + 4 + size
            if end > size_of_all or size == _PART:
                self._at = at
                return size == _PART
            add(at + 4)
            at = end
        self._at = at
        return False

    def _ends(self, start: int, end: int) -> bool:
        return self._is_end(self._bytes[start : min(end, start + 9)])

    @staticmethod
    def _is_end(packet: Sequence[int]) -> bool:
        return packet[0] == 255 or (packet[0] == 254 and len(packet) < 9)

    def _take(self, rows: int) -> Iterator[Block]:
        starts, self._starts = np.array(self._starts, np.int64), []
        data = bytes(memoryview(self._bytes)[: self._at])
        del self._bytes[: self._at]
        self._at = 0
        for first in range(0, len(starts), rows):
            yield Block(data, starts[first : first + rows])

    def _joined(self) -> bytes:
        """Returns the packet at the beginning, of all its parts."""
        parts, size = [], _PART
        while size == _PART:
            while len(self._bytes) < 4:
                self._more()
            size = int.from_bytes(self._bytes[:3], "little")
            while len(self._bytes) < 4 + size:
                self._more()
            parts.append(bytes(self._bytes[4 : 4 + size]))
            del self._bytes[: 4 + size]
        return b"".join(parts)

    def _more(self) -> None:
        found = self._read(_CHUNK)
        if not found:
            raise OSError("the server has closed it")
        self._bytes += found
