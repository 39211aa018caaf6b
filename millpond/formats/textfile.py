"""Implements what text formats have in common: records that can be divided by bytes, and are decoded in blocks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.errors import BadData
from millpond.formats.base import Format, Piece, is_packed
from millpond.formats.blocks import (
    BLOCK,
    LONGEST_RECORD,
    Block,
    Positions,
    Records,
    blocks_of,
    in_threads,
    line_breaks,
)
from millpond.formats.read_records import Part, RejectedRecord, no_rows

BYTES_PER_PIECE = 64 << 20
LARGEST_PACKED = 1 << 30
"""Maximum bytes of a decompressed file that is read as a whole. A few thousandths of that can be compressed so."""


class Where:
    """Describes the place of a record for an error: its line, or its byte if the lines before are not known."""

    def __init__(self, path: str, block: Block, line: int | None):
        self.path = path
        self.block = block
        self.line = line

    def __call__(self, offset: int) -> str:
        """Returns the place of what begins ``offset`` bytes into the block."""
        if self.line is None:
            return f'file "{self.path}", byte {self.block.begin + offset}'
        return f'file "{self.path}", line {self.line + int(np.searchsorted(self._breaks, offset))}'

    @cached_property
    def _breaks(self) -> Positions:
        """Returns where the lines of the block end."""
        text = np.frombuffer(self.block.data, np.uint8)
        ends = np.flatnonzero(text == 10)
        if b"\r" not in self.block.data:
            return ends
        returns = np.flatnonzero(text == 13)
        after = np.append(text, 0)[returns + 1]
        return np.union1d(ends, returns[after != 10])


class _Unpacked:
    """Decompresses a stream; a damaged one is bad data, not a failure to read."""

    def __init__(self, path: str, stream: pa.NativeFile):
        self._path = path
        self._stream = stream

    def read(self, size: int | None = None) -> bytes:
        try:
            return bytes(self._stream.read(size))
        except OSError as error:
            if error.errno is not None:
                raise
            raise BadData(f'file "{self._path}" cannot be unpacked: {error}') from None


def read_whole(stream: Any, path: str) -> bytes:
    """Reads all of a stream. Raises BadData for a compressed file that becomes so large that this must be intended."""
    if not is_packed(path):
        return bytes(stream.read())
    parts: list[bytes] = []
    size = 0
    while part := bytes(stream.read(BLOCK)):
        parts.append(part)
        size += len(part)
        if size > LARGEST_PACKED:
            raise BadData(
                f'file "{path}" becomes more than {LARGEST_PACKED >> 20} MB when it is unpacked',
                hint="unpack it first, or write JSON lines: these are read in parts",
            )
    return b"".join(parts)


class TextFormat(Format):
    """Reads text records, one after another."""

    @abstractmethod
    def records(self, path: str) -> Records:
        """Returns what finds the ends of records."""

    def first(self, path: str) -> tuple[int, int]:
        """Returns the position of the first record, and its line."""
        return 0, 1

    def grows(self, path: str) -> bool:
        return not is_packed(path)

    def complete(self, path: str, begin: int, size: int, *, final: bool) -> int:
        if final or begin >= size or is_packed(path):
            return size
        end = begin
        for block in self.blocks(path, begin, size, final=False):
            end = block.end
        return end

    def pieces(self, path: str, begin: int = 0, end: int | None = None) -> list[Piece]:
        if is_packed(path):
            return [Piece()]
        with self.open_file(path) as file:
            size = file.size() if end is None else end
        if size - begin <= BYTES_PER_PIECE:
            return [Piece(begin=begin, end=end)]
        cuts = [begin, *self.cuts(path, begin, size, BYTES_PER_PIECE), end]
        return [Piece(begin=a or 0, end=b) for a, b in pairwise(cuts)]

    def divided(self, path: str, piece: Piece, size: int) -> list[Piece]:
        if not self.grows(path) or piece.end is None:
            return [piece]
        cuts = [piece.begin, *self.cuts(path, piece.begin, piece.end, size), piece.end]
        return [Piece(begin=a, end=b) for a, b in pairwise(cuts)]

    def cuts(self, path: str, begin: int, end: int, about: int) -> list[int]:
        """Returns positions between two, at each of which a record begins, about so many bytes apart."""
        found: list[int] = []
        last = begin
        for block in self.blocks(path, begin, end):
            if block.begin - last >= about:
                found.append(block.begin)
                last = block.begin
        return found

    def blocks(self, path: str, begin: int, end: int | None, *, final: bool = True) -> Iterator[Block]:
        """Yields the blocks of whole records from one position to another."""
        limit = self.values.get("max.record") or LONGEST_RECORD
        with self.stream(path, begin, end) as stream:
            yield from blocks_of(stream, begin, self.records(path), limit=limit, final=final)

    @contextmanager
    def stream(self, path: str, begin: int, end: int | None) -> Iterator[Any]:
        """Opens the bytes from one position to another, decompressed."""
        if is_packed(path):
            with self.open(path) as stream:
                unpacked = _Unpacked(path, stream)
                unpacked.read(begin)
                yield unpacked
        else:
            with self.open_file(path) as file:
                size = (file.size() if end is None else end) - begin
                yield file.get_stream(begin, max(size, 0))

    def decoded(
        self, path: str, piece: Piece, decode: Callable[[Block, Where], Part], empty: pa.Schema
    ) -> Iterator[Part]:
        """Decodes the blocks of a piece."""
        begin, first_line = self.first(path)

        def work(block: Block, line: int | None) -> Part:
            where = Where(path, block, line)
            if block.wrong is None:
                return decode(block, where)
            error = BadData(f"{where(0)}: {block.wrong}", hint=self.records(path).hint)
            return Part(no_rows(empty), [RejectedRecord(0, error, block.data.rstrip(b"\r\n"))])

        def numbered() -> Iterator[tuple[Block, int | None]]:
            line = first_line if piece.begin <= begin else None
            for block in self.blocks(path, max(piece.begin, begin), piece.end):
                yield block, line
                if line is not None:
                    line += line_breaks(block.data) if block.wrong is None else 1

        return in_threads(work, numbered())
