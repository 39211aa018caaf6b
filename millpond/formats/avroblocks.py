"""Reads the blocks of an Avro container: a header with the schema, then blocks of records, each followed by a sync
marker.

The marker can be found anywhere, so a file can be read from the middle, and after a damaged block.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from millpond.errors import BadData
from millpond.formats.avroskip import long_at

MAGIC = b"Obj\x01"
_MARK = 16
_CHUNK = 1 << 18
_LARGEST = 1 << 30
"""Maximum bytes of a block."""
_LARGEST_UNPACKED = 256 << 20
"""Maximum bytes of a block's records. Writers make blocks of some KB to some MB."""


class Header(NamedTuple):
    schema: str
    codec: str
    mark: bytes


class AvroBlock(NamedTuple):
    """Contains the records that begin at a byte of the file, decompressed; or, if ``wrong`` says why, what cannot be
    read.
    """

    begin: int
    records: int
    data: bytes
    wrong: str | None = None


class Container:
    """Reads blocks from a stream that is at byte ``at`` of its file."""

    def __init__(self, path: str, stream: Any, at: int = 0):
        self._path = path
        self._stream = stream
        self._data = b""
        self._at = at

    def _fill(self, size: int) -> None:
        """Buffers so many bytes; raises IndexError if the file has no more."""
        while len(self._data) < size:
            more = bytes(self._stream.read(max(_CHUNK, size - len(self._data))))
            if not more:
                raise IndexError
            self._data += more

    def _take(self, size: int) -> bytes:
        self._fill(size)
        taken, self._data = self._data[:size], self._data[size:]
        self._at += size
        return taken

    def _long(self) -> int:
        for size in range(1, 11):
            self._fill(size)
            if self._data[size - 1] < 0x80:
                return long_at(self._take(size), 0)[0]
        raise ValueError("a number has more than 64 bits")

    def _bytes(self, largest: int = _LARGEST) -> bytes:
        size = self._long()
        if not 0 <= size <= largest:
            raise ValueError(f"a length of {size} bytes")
        return self._take(size)

    def header(self) -> Header:
        try:
            if self._take(len(MAGIC)) != MAGIC:
                raise ValueError("it does not begin as such a file does")
            found: dict[str, bytes] = {}
            while count := self._long():
                if count < 0:
                    self._long()
                for _ in range(abs(count)):
                    name = self._bytes().decode()
                    found[name] = self._bytes()
            mark = self._take(_MARK)
            return Header(found["avro.schema"].decode(), found.get("avro.codec", b"null").decode(), mark)
        except (ValueError, KeyError, IndexError) as error:
            reason = str(error) if isinstance(error, ValueError) else "its header is cut off"
            raise BadData(f'file "{self._path}" is not Avro: {reason}') from None

    def seek(self, mark: bytes) -> bool:
        """Moves after the next marker; returns False if there is none."""
        while (place := self._data.find(mark)) < 0:
            keep = max(0, len(self._data) - _MARK + 1)
            self._at, self._data = self._at + keep, self._data[keep:]
            more = bytes(self._stream.read(_CHUNK))
            if not more:
                return False
            self._data += more
        self._at, self._data = self._at + place + _MARK, self._data[place + _MARK :]
        return True

    def blocks(self, header: Header, end: int | None) -> Iterator[AvroBlock]:
        """Yields, from after a marker on, the blocks whose preceding marker begins before ``end``."""
        while end is None or self._at - _MARK < end:
            try:
                self._fill(1)
            except IndexError:
                return
            begin = self._at
            try:
                block = self._block(header)
            except (ValueError, IndexError, OSError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
                reason = "it is cut off" if isinstance(error, IndexError) else str(error)
                yield AvroBlock(begin, 0, b"", reason)
                if not self.seek(header.mark):
                    return
                continue
            yield block

    def _block(self, header: Header) -> AvroBlock:
        begin = self._at
        count = self._long()
        if count < 0:
            raise ValueError(f"a block of {count} records")
        size = self._long()
        if not 0 <= size <= _LARGEST:
            raise ValueError(f"a block of {size} bytes")
        self._fill(size + _MARK)
        if self._data[size : size + _MARK] != header.mark:
            raise ValueError("the sync marker after a block is missing")
        data = self._take(size)
        self._take(_MARK)
        # What cannot be decompressed ends here: reading continues after it.
        try:
            return AvroBlock(begin, count, unpack(data, header.codec))
        except (ValueError, OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
            return AvroBlock(begin, count, b"", f"it cannot be unpacked: {error}")


CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")


def unpack(data: bytes, codec: str) -> bytes:
    """Decompresses the records of a block. Raises ValueError for more bytes than a block may have: a few bytes can
    become any number.
    """
    match codec:
        case "null":
            return data
        case "deflate":
            return _unpacked(zlib.decompressobj(-15), data)
        case "snappy":
            size = _snappy_size(data)
            if size > _LARGEST_UNPACKED:
                raise ValueError(f"{size} bytes")
            found = bytes(pa.Codec("snappy").decompress(data[:-4], size, asbytes=True))
            if zlib.crc32(found) != int.from_bytes(data[-4:], "big"):
                raise ValueError("the checksum is wrong")
            return found
        case "zstandard":
            return _whole(_read_all(pa.CompressedInputStream(pa.BufferReader(data), "zstd")))
        case "bzip2":
            return _unpacked(bz2.BZ2Decompressor(), data)
        case "xz":
            return _unpacked(lzma.LZMADecompressor(), data)
    raise ValueError(f'the codec "{codec}" is not known')


def _read_all(stream: pa.NativeFile) -> bytes:
    """Reads all of a stream, or a little more than allowed."""
    parts, size = [], 0
    while size <= _LARGEST_UNPACKED and (part := stream.read(_CHUNK)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _unpacked(unpacker: Any, data: bytes) -> bytes:
    found = _whole(unpacker.decompress(data, _LARGEST_UNPACKED + 1))
    if not unpacker.eof:
        raise ValueError("it is cut off")
    return found


def _whole(found: bytes) -> bytes:
    if len(found) > _LARGEST_UNPACKED:
        raise ValueError(f"more than {_LARGEST_UNPACKED:,} bytes")
    return found


def _snappy_size(data: bytes) -> int:
    """Returns the decompressed size: a number at the beginning."""
    value = shift = 0
    for byte in data[:5]:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise ValueError("it is cut off")
