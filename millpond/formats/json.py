"""JSON: a file with one array of objects, or one object. A file of JSON lines is seen by its content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from millpond.errors import BadData
from millpond.formats.base import Format, Piece
from millpond.formats.jsonblock import BlockReader, Records
from millpond.formats.jsonl import BOM, SAMPLE_ROWS, JsonLines
from millpond.formats.jsontypes import discover_records
from millpond.formats.jsonvalues import DECODER
from millpond.types import Schema

SAMPLE = 1 << 20
ROWS_PER_BATCH = 64 * 1024
_BETWEEN = " \t\r\n,"


class Json(Format):
    """An array is held in memory while it is read; JSON lines are not."""

    name: ClassVar[str] = "json"
    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    def discover(self, path: str) -> Schema:
        sample = self._start(path)
        if _is_lines(sample):
            return JsonLines(self.values, self.files).discover(path)
        text = sample.decode(errors="replace")
        found = list(_elements(text)) if len(sample) >= SAMPLE else []
        return discover_records((found or _parse(path, self._all(path)).rows)[:SAMPLE_ROWS])

    def read(
        self, path: str, schema: Schema, piece: Piece | None = None, *, declared: bool = True
    ) -> Iterator[pa.RecordBatch]:
        if _is_lines(self._start(path)):
            yield from JsonLines(self.values, self.files).read(path, schema, piece, declared=declared)
            return
        content = self._all(path)
        if not content or content.isspace():
            return
        block = content if content.lstrip().startswith(b"[") else b"[" + content + b"]"
        reader = BlockReader(path, schema, declared=declared)
        whole = reader.read(block, lambda: _parse(path, content), enclosed=True)
        for first in range(0, whole.num_rows, ROWS_PER_BATCH):
            yield whole.slice(first, ROWS_PER_BATCH)

    def _start(self, path: str) -> bytes:
        with self.open(path) as stream:
            return bytes(stream.read(SAMPLE)).removeprefix(BOM)

    def _all(self, path: str) -> bytes:
        with self.open(path) as stream:
            content = bytes(stream.read()).removeprefix(BOM)
        try:
            content.decode()
        except UnicodeDecodeError as e:
            raise BadData(f'file "{path}" is not UTF-8: {e}') from None
        return content


def _is_lines(sample: bytes) -> bool:
    """Whether the first line is an object of its own, with more after it."""
    first, _, rest = sample.lstrip().partition(b"\n")
    if not first.startswith(b"{") or not rest.strip():
        return False
    try:
        DECODER.decode(first.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _parse(path: str, content: bytes) -> Records:
    text = content.decode()
    try:
        value = DECODER.decode(text) if text.strip() else []
    except (ValueError, RecursionError) as e:
        raise BadData(f'file "{path}" is not JSON: {e}') from None
    rows = value if isinstance(value, list) else [value]
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise BadData(f'file "{path}", record {index + 1}: not a JSON object')
    return Records(rows, lambda index: f"record {index + 1}")


def _elements(text: str) -> Iterator[dict[str, Any]]:
    """The objects of the beginning of an array, up to where it is cut off."""
    at = text.find("[") + 1
    while at and at < len(text):
        while at < len(text) and text[at] in _BETWEEN:
            at += 1
        try:
            element, at = DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        if not isinstance(element, dict):
            return
        yield element
