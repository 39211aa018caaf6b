"""Containers of Avro, as another library writes them; damaged blocks, and files that are read in pieces."""

from __future__ import annotations

import io
import random
import zlib
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from millpond.errors import BadData
from millpond.formats import avro
from millpond.formats.avro import Avro
from millpond.formats.base import Piece, find_format
from millpond.types import Column, Schema
from tests.formats.test_avro import EVERYTHING, a_record

ITEM = {
    "type": "record", "name": "Item", "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}  # fmt: skip


def write(path: Path, schema: Any, records: list[Any], **options: Any) -> None:
    with path.open("wb") as file:
        fastavro.writer(file, schema, records, **options)


def received(path: Path, schema: Schema | None = None) -> tuple[list[Any], list[str]]:
    form = Avro()
    rows, reasons = [], []
    places: list[int] = []
    for piece in form.pieces(str(path)):
        for part in form.receive(str(path), schema or form.discover(str(path)), piece):
            rows += part.rows.to_pylist(maps_as_pydicts="strict")
            reasons += part.rejected["reason"].to_pylist()
            places += [piece.first_row + p for p in part.places.to_pylist()]
    assert places == sorted(set(places))
    return rows, reasons


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
@pytest.mark.parametrize("about", [1_000, 1 << 26])
def test_the_same_rows_as_another_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, about: int
) -> None:
    monkeypatch.setattr(avro, "BYTES_PER_PIECE", about)
    chance, path = random.Random(3), tmp_path / "t.avro"
    records = [a_record(chance) for _ in range(300)]
    write(path, EVERYTHING, records, codec=codec, sync_interval=700)
    with path.open("rb") as file:
        expected = list(fastavro.reader(file))
    assert received(path) == (expected, [])
    assert find_format("a.avro") is Avro


def _framed(codec: str, packed: bytes, count: int) -> bytes:
    """One block of records of a single long."""
    file = io.BytesIO()
    fastavro.writer(file, {"type": "record", "name": "N", "fields": [{"name": "id", "type": "long"}]}, [])
    header = file.getvalue().replace(b"null", codec.encode(), 1)
    size = header.index(b"avro.codec") + len("avro.codec")
    header = header[:size] + bytes([2 * len(codec)]) + header[size + 1 :]
    mark = header[-16:]
    length = bytearray()
    value = 2 * len(packed)
    while value > 127:
        length.append(value & 127 | 128)
        value >>= 7
    length.append(value)
    return header + bytes([2 * count]) + bytes(length) + packed + mark


def test_codecs_that_arrow_knows(tmp_path: Path) -> None:
    data = bytes(2 * n for n in range(50))
    snappy = pa.compress(data, "snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big")
    path = tmp_path / "t.avro"
    for codec, packed in [("snappy", snappy), ("zstandard", pa.compress(data, "zstd", asbytes=True))]:
        path.write_bytes(_framed(codec, packed, 50))
        assert received(path) == ([{"id": n} for n in range(50)], [])
        path.write_bytes(_framed(codec, b"x" * 6 + packed[6:], 50))
        rows, (reason,) = received(path)
        assert rows == [] and "cannot be unpacked" in reason
    path.write_bytes(_framed("lz9", data, 50))
    with pytest.raises(BadData, match='is packed by "lz9"'):
        Avro().discover(str(path))


def test_columns_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.avro"
    write(path, ITEM, [{"id": 1, "name": "a"}, {"id": 2**40, "name": None}])
    wanted = Schema((Column("NAME", pa.string()), Column("more", pa.date32()), Column("ID", pa.int32())))
    rows, (reason,) = received(path, wanted)
    assert rows == [{"NAME": "a", "more": None, "ID": 1}]
    assert (
        f'file "{path}", record 2 of the block at byte' in reason
        and 'field "ID" does not fit into INT' in reason
    )
    rows, (reason,) = received(path, Schema((Column("id", pa.string()),)))
    assert rows == [] and reason == f'file "{path}": field "id" is BIGINT, declared STRING'


def test_a_damaged_block_is_one_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "t.avro"
    write(path, ITEM, [{"id": i, "name": f"name {i}"} for i in range(1_000)], sync_interval=100)
    content = bytearray(path.read_bytes())
    place = content.index(b"name 500")
    content[place - 1] = 0xFE  # the length of a text
    path.write_bytes(content)
    rows, reasons = received(path)
    ids = [r["id"] for r in rows]
    assert len(reasons) == 1 and "the block at byte" in reasons[0]
    assert 500 not in ids and {0, 480, 520, 999} <= set(ids) and len(ids) > 980
    with pytest.raises(BadData, match="the block at byte"):
        list(Avro().read(str(path), Avro().discover(str(path)), Piece()))


def test_files_that_are_cut_off_or_something_else(tmp_path: Path) -> None:
    path = tmp_path / "t.avro"
    write(path, ITEM, [{"id": i, "name": "x"} for i in range(100)], sync_interval=100)
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    rows, (reason,) = received(path)
    assert [r["id"] for r in rows] == list(range(len(rows))) and 80 < len(rows) < 100
    assert "it is cut off" in reason
    for other in (b"", b"id,name\n", content[:60], b"Obj\x01" + b"\xff" * 100):
        path.write_bytes(other)
        with pytest.raises(BadData, match="is not Avro"):
            Avro().discover(str(path))
    write(path, {"type": "long"}, [1, 2])  # type: ignore[arg-type]
    with pytest.raises(BadData, match="records"):
        Avro().discover(str(path))


def test_a_file_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.avro"
    write(path, ITEM, [])
    assert received(path) == ([], [])
    assert Avro().discover(str(path)).names == ("id", "name")
