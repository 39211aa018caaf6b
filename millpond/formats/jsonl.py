"""JSON lines: one object on each line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import pyarrow as pa

from millpond.errors import BadData
from millpond.formats.base import Format, Piece
from millpond.formats.jsonblock import BlockReader, Records
from millpond.formats.jsontypes import discover_records
from millpond.formats.jsonvalues import DECODER
from millpond.types import Schema

BLOCK = 1 << 20
SAMPLE_ROWS = 10_000
THREADS = 2
BOM = b"\xef\xbb\xbf"


class JsonLines(Format):
    name: ClassVar[str] = "jsonl"
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")

    def discover(self, path: str) -> Schema:
        block = next(_blocks(self.open(path)), b"")
        return discover_records(r for _, r in islice(_records(path, block, 1), SAMPLE_ROWS))

    def read(
        self, path: str, schema: Schema, piece: Piece | None = None, *, declared: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Blocks are decoded in threads, a few ahead of the reader."""
        reader = BlockReader(path, schema, declared=declared)
        ahead: deque[Future[pa.RecordBatch]] = deque()
        line = 1
        with ThreadPoolExecutor(THREADS) as pool:
            for block in _blocks(self.open(path)):
                ahead.append(pool.submit(_decode, reader, block, line))
                line += block.count(b"\n")
                if len(ahead) > THREADS:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()


def _decode(reader: BlockReader, block: bytes, line: int) -> pa.RecordBatch:
    parse = partial(_parse, reader.path, block, line)
    if block.isspace():
        return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in reader.arrow], schema=reader.arrow)
    try:
        block.decode()
    except UnicodeDecodeError:
        parse()
    return reader.read(block, parse)


def _parse(path: str, block: bytes, line: int) -> Records:
    found = list(_records(path, block, line))
    return Records([r for _, r in found], lambda index: f"line {found[index][0]}")


def _records(path: str, block: bytes, line: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records of a block with their lines; blank lines are left out."""
    for number, text in enumerate(block.split(b"\n"), line):
        if not text.strip():
            continue
        try:
            record = DECODER.decode(text.decode())
        except (ValueError, RecursionError) as e:
            raise BadData(f'file "{path}", line {number}: not JSON: {e}') from None
        if not isinstance(record, dict):
            raise BadData(
                f'file "{path}", line {number}: not a JSON object',
                hint="a file with one array of objects is read WITH ('format' = 'json')",
            )
        yield number, record


def _blocks(file: pa.NativeFile) -> Iterator[bytes]:
    """The file in blocks of whole lines; a line longer than a block makes its block larger."""
    rest = b""
    with file as stream:
        first = True
        while chunk := stream.read(BLOCK):
            if first:
                chunk, first = chunk.removeprefix(BOM), False
            cut = chunk.rfind(b"\n") + 1
            if not cut:
                rest += chunk
                continue
            yield rest + chunk[:cut]
            rest = chunk[cut:]
    if rest:
        yield rest
