"""Reads a text file in blocks of whole records, which can be decoded in threads.

A record that is longer than a limit, for example because a quote is not closed, invalidates only its first line:
reading continues after that line. Where records end does not depend on the sizes of blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BLOCK = 1 << 20
LONGEST_RECORD = 16 << 20
SHOWN = 64 << 10
"""Bytes that are stored of a line that is too long."""
THREADS = 2
AHEAD = 8
"""Blocks that are decoded before they are requested, so that the threads have work while rows are committed."""
BOM = b"\xef\xbb\xbf"

Positions = npt.NDArray[np.int64]
T = TypeVar("T")


class Block(NamedTuple):
    """Contains whole records, the bytes of the file from one position to another; or, if ``wrong`` says why, the
    beginning of a line that is not a record.
    """

    begin: int
    end: int
    data: bytes
    wrong: str | None = None


class Records(ABC):
    """Finds where records end."""

    hint: ClassVar[str] = "raise 'max.record' if it is meant to be that long"
    """The hint for a record that is too long."""

    @abstractmethod
    def ends(self, data: bytes) -> Positions:
        """Returns the positions after each whole record of data that begins with one."""

    @abstractmethod
    def last_end(self, data: bytes) -> int:
        """Returns the last of them, or 0."""

    def is_open(self, data: bytes) -> bool:
        """Returns whether data that is followed by nothing ends within a record that is not closed."""
        return False


class Lines(Records):
    """Treats each line as a record."""

    def ends(self, data: bytes) -> Positions:
        return np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + 1

    def last_end(self, data: bytes) -> int:
        return data.rfind(b"\n") + 1


def blocks_of(
    stream: pa.NativeFile, begin: int, records: Records, *, limit: int, final: bool = True
) -> Iterator[Block]:
    """Yields the blocks of a stream that is at a record which begins at byte ``begin`` of its file.

    What is at the end without a line break is a record if nothing will follow (``final``), else it is left out.
    """
    data, at, ended = b"", begin, False
    if begin == 0:
        data = bytes(stream.read(BLOCK))
        at = len(BOM) if data.startswith(BOM) else 0
        data = data[at:]
    while not ended:
        chunk = bytes(stream.read(max(BLOCK, len(data))))
        data, ended = data + chunk, not chunk
        while (wrong := _wrong(data, records, limit, ended=ended, final=final)) is not None:
            place, reason = wrong
            if place:
                yield Block(at, at + place, data[:place])
            at += place
            line, data, length = _without_line(data[place:], stream)
            yield Block(at, at + length, line, reason)
            at += length
        cut = len(data) if ended and final else records.last_end(data)
        if cut:
            yield Block(at, at + cut, data[:cut])
        at, data = at + cut, data[cut:]


def _wrong(data: bytes, records: Records, limit: int, *, ended: bool, final: bool) -> tuple[int, str] | None:
    """Returns where the first record begins that is too long or not closed, and what is wrong with it."""
    if len(data) > limit:
        ends = records.ends(data)
        stops = ends if len(ends) and ends[-1] == len(data) else np.append(ends, len(data))
        long = np.flatnonzero(np.diff(stops, prepend=0) > limit)
        if len(long):
            return int(stops[long[0] - 1]) if long[0] else 0, f"a row of more than {_size(limit)}"
    if ended and final and data and records.is_open(data):
        return records.last_end(data), "a quote is not closed"
    return None


def _without_line(data: bytes, stream: pa.NativeFile) -> tuple[bytes, bytes, int]:
    """Returns the beginning of the first line, what follows it, and its length."""
    line, skipped = b"", 0
    while (end := data.find(b"\n") + 1) == 0:
        line += data[: SHOWN - len(line)]
        skipped += len(data)
        data = bytes(stream.read(BLOCK))
        if not data:
            return line, b"", skipped
    line += data[: min(end, SHOWN - len(line))]
    return line, data[end:], skipped + end


def _size(limit: int) -> str:
    return f"{limit >> 20} MB" if limit >= 1 << 20 else f"{limit} bytes"


def in_threads(work: Callable[..., T], items: Iterable[tuple[object, ...]]) -> Iterator[T]:
    """Yields the result of each item, in order; computed in threads, a few ahead of the reader."""
    ahead: deque[Future[T]] = deque()
    with ThreadPoolExecutor(THREADS) as pool:
        for item in items:
            ahead.append(pool.submit(work, *item))
            if len(ahead) > AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def is_text(data: bytes) -> bool:
    """Returns whether it is UTF-8."""
    offsets = np.array([0, len(data)], np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def line_breaks(data: bytes) -> int:
    r"""Counts the lines of data of whole lines: ``\n``, ``\r\n`` or ``\r``."""
    count = count_of(data, 10)
    return count + data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else count


def count_of(data: bytes, byte: int) -> int:
    """Counts a byte: if it is frequent, much faster than ``bytes.count``."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == byte))
