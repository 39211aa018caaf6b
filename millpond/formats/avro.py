"""Reads Avro container files, which contain the schema of their records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millpond.errors import BadData, InvalidOption
from millpond.formats.avroblocks import CODECS, AvroBlock, Container, Header
from millpond.formats.avrofit import fits
from millpond.formats.avroschema import Node, parse_avro
from millpond.formats.avroskip import ends_of
from millpond.formats.base import Format, Piece, is_packed
from millpond.formats.messages.avro import AvroMessages
from millpond.formats.read_records import Part, RejectedRecord, no_rows
from millpond.types import Schema, type_name

BYTES_PER_PIECE = 64 << 20
ROWS_PER_BATCH = 64 * 1024
_ROWS_PER_BYTE = 16
"""Compressed records may take less than a byte: rows of a piece are numbered so that each piece has its own numbers."""


class Avro(Format):
    """Reads Avro files. Unions and logical types become columns as for Avro messages."""

    name: ClassVar[str] = "avro"
    guesses: ClassVar[bool] = False
    suffixes: ClassVar[tuple[str, ...]] = (".avro",)

    def discover(self, path: str) -> Schema:
        with self._open(path, 0) as (_, node, _):
            return node.columns

    def pieces(self, path: str, begin: int = 0, end: int | None = None) -> list[Piece]:
        """Returns ranges of bytes: a block belongs to the one in which the marker before it begins."""
        if is_packed(path):
            return [Piece()]
        with self.open_file(path) as file:
            size = file.size()
        ranges = range(0, max(size, 1), BYTES_PER_PIECE)
        return [
            Piece(first * _ROWS_PER_BYTE, groups=(first, min(first + BYTES_PER_PIECE, size)))
            for first in ranges
        ]

    def parts(self, path: str, schema: Schema, piece: Piece, *, declared: bool) -> Iterator[Part]:
        """Yields the records of a piece. A block that cannot be read is one bad record."""
        first, end = piece.groups or (0, None)
        with self._open(path, first) as (header, node, container):
            _check_types(path, schema, node)
            messages = AvroMessages(schema, {"avro.schema": header.schema})
            blocks: list[tuple[AvroBlock, list[int]]] = []
            for block in container.blocks(header, end) if container is not None else ():
                wrong, ends = block.wrong, list[int]()
                if wrong is None:
                    try:
                        ends = ends_of(block.data, block.records, node)
                        blocks.append((block, ends))
                    except ValueError as error:
                        wrong = str(error)
                if blocks and (wrong or sum(len(e) for _, e in blocks) >= ROWS_PER_BATCH):
                    yield _decoded(path, blocks, messages)
                    blocks = []
                if wrong is not None:
                    what = f'file "{path}", the block at byte {block.begin} cannot be read: {wrong}'
                    yield Part(no_rows(schema.arrow()), [RejectedRecord(0, BadData(what), None)])
            if blocks:
                yield _decoded(path, blocks, messages)

    @contextmanager
    def _open(self, path: str, begin: int) -> Iterator[tuple[Header, Node, Container | None]]:
        """Reads the header, and returns a reader at the first block after a byte, if there is one."""
        with self.open(path) as stream:
            container = Container(path, stream)
            header = container.header()
            try:
                node = parse_avro(header.schema)
            except InvalidOption as error:
                raise BadData(f'file "{path}": {error.message}') from None
            if header.codec not in CODECS:
                raise BadData(f'file "{path}" is packed by "{header.codec}"; known: {", ".join(CODECS)}')
            if begin == 0:
                yield header, node, container
                return
            stream.seek(begin)
            container = Container(path, stream, begin)
            yield header, node, container if container.seek(header.mark) else None


def _check_types(path: str, schema: Schema, node: Node) -> None:
    for column in schema:
        have = node.columns.find(column.name)
        if have is not None and not fits(have.type, column.type):
            raise BadData(
                f'file "{path}": field "{have.name}" is {type_name(have.type)}, declared {type_name(column.type)}',
                hint=f"declare it {type_name(have.type)}, and cast it in the query",
            )


def _decoded(path: str, blocks: list[tuple[AvroBlock, list[int]]], messages: AvroMessages) -> Part:
    """Decodes the rows of some ``blocks``, each with the places where their records end."""
    data = b"".join(block.data for block, _ in blocks)
    starts = np.cumsum([0, *(len(block.data) for block, _ in blocks)])
    ends = [np.array(e, np.int64) + s for (_, e), s in zip(blocks, starts, strict=False)]
    offsets = np.concatenate([np.zeros(1, np.int64), *ends])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    values = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    rows, bad, reasons = messages.decode(values)
    firsts = np.cumsum([0, *(len(e) for _, e in blocks)])

    def rejected(place: int, reason: str) -> RejectedRecord:
        number = int(np.searchsorted(firsts, place, side="right")) - 1
        record = place - int(firsts[number]) + 1
        where = f'file "{path}", record {record} of the block at byte {blocks[number][0].begin}'
        return RejectedRecord(place, BadData(f"{where}: {reason}"), values[place].as_py())

    found = [rejected(p, r) for p, r in zip(bad, reasons, strict=True)]
    return Part(rows, sorted(found, key=lambda s: s.place))
