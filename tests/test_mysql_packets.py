"""The packets of a result of MySQL: the cells are those that were sent, however the bytes arrive."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from millpond.connectors.mysql.packets import Packets

END = b"\xfe\x00\x00\x02\x00"
Row = list[bytes | None]


def cell(value: bytes | None) -> bytes:
    if value is None:
        return b"\xfb"
    size = len(value)
    if size < 251:
        return bytes([size]) + value
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little") + value
    if size < 1 << 24:
        return b"\xfd" + size.to_bytes(3, "little") + value
    return b"\xfe" + size.to_bytes(8, "little") + value


def packets(data: bytes) -> bytes:
    made = b""
    while True:
        part, data = data[:0xFFFFFF], data[0xFFFFFF:]
        made += len(part).to_bytes(3, "little") + b"\0" + part
        if len(part) < 0xFFFFFF:
            return made


def sent(rows: list[Row], end: bytes = END) -> bytes:
    return b"".join(packets(b"".join(map(cell, row))) for row in rows) + packets(end)


def received(
    data: bytes, columns: int, rows: int, chunk: random.Random | None = None
) -> tuple[list[Row], bytes]:
    at = 0

    def read(most: int) -> bytes:
        nonlocal at
        size = most if chunk is None else min(most, chunk.choice((1, 2, 3, 5, 100, 5000)))
        found = data[at : at + size]
        at += len(found)
        return found

    made: list[Row] = []
    reader = Packets(read)
    for block in reader.blocks(rows):
        found = block.columns(columns)
        assert all(len(c) == len(block.starts) <= rows and c.type == pa.binary() for c in found)
        made += [list(row) for row in zip(*(c.to_pylist() for c in found), strict=True)]
    assert reader.last is not None and at == len(data)
    return made, reader.last


@pytest.mark.parametrize("seed", range(20))
def test_cells_are_those_that_were_sent(seed: int) -> None:
    chance = random.Random(seed)
    columns = chance.randint(1, 5)

    def value() -> bytes | None:
        size = chance.choice((0, 0, 1, 3, 8, 8, 20, 250, 251, 252, 253, 254, 255, 256, 1000, 70_000))
        return None if chance.random() < 0.1 else chance.randbytes(size)

    rows = [[value() for _ in range(columns)] for _ in range(chance.choice((0, 1, 5, 60)))]
    data = sent(rows)
    for chunk in (None, chance):
        assert received(data, columns, chance.choice((1, 7, 1000)), chunk) == (rows, END)


def test_a_row_of_several_packets() -> None:
    rows: list[Row] = [
        [b"a", b"b"],
        [b"x" * 0xFFFFFF, b"y" * 0xFFFFFF],
        [b"c", None],
        [b"", b"z" * (0xFFFFFF - 5)],
    ]
    assert received(sent(rows), 2, 100) == (rows, END)


def test_an_error_after_rows_and_a_connection_that_ends() -> None:
    error = b"\xff\x15\x04#28000no"
    assert received(sent([[b"1"]], error), 1, 10) == ([[b"1"]], error)
    with pytest.raises(OSError, match="closed"):
        received(sent([[b"1"]])[:-3], 1, 10)
