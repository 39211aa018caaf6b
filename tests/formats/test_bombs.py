"""Files of a few bytes that unpack to more than there is memory for: read in parts, or refused."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tracemalloc
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from millpond import App
from millpond.errors import BadData, Error
from millpond.formats import avroblocks
from millpond.formats.avroblocks import unpack
from millpond.formats.csv import Csv
from millpond.formats.json import Json
from millpond.formats.jsonl import JsonLines
from millpond.types import Column, Schema

MB = 1 << 20


def packed(path: Path, start: bytes, piece: bytes, count: int) -> str:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(start)
        for _ in range(count):
            file.write(piece)
    return str(path)


def test_a_line_without_an_end(tmp_path: Path) -> None:
    """Lines are read in blocks; one that is too long is told, and takes no more memory than it may be long."""
    path = packed(tmp_path / "a.jsonl.gz", b'{"a": "', b" " * MB, 150)
    schema = Schema((Column("a", pa.string()),))
    tracemalloc.start()
    parts = list(JsonLines().parts(path, schema, JsonLines().pieces(path)[0], declared=True))
    assert tracemalloc.get_traced_memory()[1] < 110 * MB
    tracemalloc.stop()
    assert [str(s.error) for p in parts for s in p.rejected] and "more than 16 MB" in str(
        parts[0].rejected[0].error
    )


def test_a_first_line_without_an_end(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.csv.gz", b"a,b", b"x" * MB, 100)
    tracemalloc.start()
    with pytest.raises(BadData, match="first line has no end"):
        Csv().discover(path)
    assert tracemalloc.get_traced_memory()[1] < 200 * MB
    tracemalloc.stop()


def test_json_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.formats.textfile.LARGEST_PACKED", 20 * MB)
    path = packed(tmp_path / "a.json.gz", b"[1", b" " * MB, 100)
    tracemalloc.start()
    with pytest.raises(BadData, match="more than 20 MB") as e:
        Json().discover(path)
    assert tracemalloc.get_traced_memory()[1] < 60 * MB and "JSON lines" in str(e.value.hint)
    tracemalloc.stop()
    with pytest.raises(Error):
        App(f"CREATE TABLE t AS SELECT * FROM file://{path}")


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "bzip2", "xz", "snappy"])
def test_blocks_of_avro(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avroblocks, "_LARGEST_UNPACKED", 4 * MB)
    for size in (1_000, 4 * MB, 64 * MB):
        data = bytes(size)
        match codec:
            case "deflate":
                made = zlib.compressobj(9, wbits=-15)
                found = made.compress(data) + made.flush()
            case "zstandard":
                found = bytes(pa.compress(data, "zstd", asbytes=True))
            case "bzip2":
                found = bz2.compress(data)
            case "xz":
                found = lzma.compress(data)
            case _:
                found = bytes(pa.compress(data, "snappy", asbytes=True)) + zlib.crc32(data).to_bytes(4, "big")
        if size <= 4 * MB:
            assert unpack(found, codec) == data
            with pytest.raises((ValueError, OSError, EOFError, zlib.error)):
                unpack(found[: len(found) // 2], codec)
        else:
            tracemalloc.start()
            with pytest.raises(ValueError, match="bytes"):
                unpack(found, codec)
            assert tracemalloc.get_traced_memory()[1] < 24 * MB
            tracemalloc.stop()
