"""Reads JSON: a file with one array of objects, or one object. A file of JSON lines is detected by its content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from millpond.errors import BadData
from millpond.formats.base import Format, Piece
from millpond.formats.blocks import BOM
from millpond.formats.jsonblock import BlockReader, Records
from millpond.formats.jsondepth import MAX_DEPTH, is_deeper
from millpond.formats.jsonl import SAMPLE_ROWS, JsonLines
from millpond.formats.jsontypes import discover_records
from millpond.formats.jsonvalues import DECODER, text_of
from millpond.formats.merge import widen_numbers
from millpond.formats.read_records import Part, RejectedRecord
from millpond.formats.textfile import read_whole
from millpond.types import Schema

SAMPLE = 1 << 20
ROWS_PER_BATCH = 64 * 1024
_BETWEEN = " \t\r\n,"


class Json(Format):
    """Reads JSON files. An array is in memory while it is read; JSON lines are not."""

    name: ClassVar[str] = "json"
    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    def discover(self, path: str) -> Schema:
        sample = self._start(path)
        if _is_lines(sample):
            return self._lines.discover(path)
        text = sample.decode(errors="replace")
        found = list(_elements(text)) if len(sample) >= SAMPLE else []
        if not found:
            records, _, bad = self._parse(path, self._all(path))
            if bad and not records.rows:
                raise bad[0].error
            found = list(records.rows)
        return widen_numbers(discover_records(found[:SAMPLE_ROWS]), discover_records(found[SAMPLE_ROWS:]))

    def fresh(self, path: str, known: Schema, piece: Piece) -> Schema:
        if piece.begin or _is_lines(self._start(path)):
            return self._lines.fresh(path, known, piece)
        return super().fresh(path, known, piece)

    def grows(self, path: str) -> bool:
        """Returns True for JSON lines."""
        return self._lines.grows(path) and _is_lines(self._start(path))

    def complete(self, path: str, begin: int, size: int, *, final: bool) -> int:
        return self._lines.complete(path, begin, size, final=final) if self.grows(path) else size

    def pieces(self, path: str, begin: int = 0, end: int | None = None) -> list[Piece]:
        return self._lines.pieces(path, begin, end) if self.grows(path) else [Piece()]

    def divided(self, path: str, piece: Piece, size: int) -> list[Piece]:
        return self._lines.divided(path, piece, size) if self.grows(path) else [piece]

    def parts(self, path: str, schema: Schema, piece: Piece, *, declared: bool) -> Iterator[Part]:
        if piece.begin or _is_lines(self._start(path)):
            yield from self._lines.parts(path, schema, piece, declared=declared)
            return
        content = self._all(path)
        if not content or content.isspace():
            return
        reader = BlockReader(schema, declared=declared)
        block = content if content.lstrip().startswith(b"[") else b"[" + content + b"]"
        deep = is_deeper(content, self._depth + 1)
        whole = None if deep else reader.read_native(block, enclosed=True)
        if whole is None:
            yield self._read_values(reader, path, content)
            return
        for first in range(0, whole.num_rows, ROWS_PER_BATCH):
            yield Part(whole.slice(first, ROWS_PER_BATCH))

    def _read_values(self, reader: BlockReader, path: str, content: bytes) -> Part:
        records, places, bad = self._parse(path, content)
        try:
            return Part(reader.read_values(records), bad)
        except BadData:
            rows, errors = reader.read_fitting(records)
        more = [RejectedRecord(places[i], error, _text(records.rows[i])) for i, error in errors.items()]
        return Part(rows, sorted([*bad, *more], key=lambda s: s.place))

    def _parse(self, path: str, content: bytes) -> tuple[Records, list[int], list[RejectedRecord]]:
        """Returns the records with their places, and what else there is in place of records."""
        if is_deeper(content, self._depth + 1):
            raise BadData(
                f'file "{path}" is nested deeper than {self._depth} levels',
                hint="raise 'max.depth' if it is meant to be",
            )
        text = content.decode()
        try:
            value = DECODER.decode(text) if text.strip() else []
        except (ValueError, RecursionError) as e:
            raise BadData(f'file "{path}" is not JSON: {e}') from None
        rows: list[dict[str, Any]] = []
        places: list[int] = []
        bad: list[RejectedRecord] = []
        for index, row in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(row, dict):
                rows.append(row)
                places.append(index)
            else:
                error = BadData(f'file "{path}", record {index + 1}: not a JSON object')
                bad.append(RejectedRecord(index, error, _text(row)))
        return Records(rows, lambda i: f'file "{path}", record {places[i] + 1}'), places, bad

    @property
    def _depth(self) -> int:
        return self.values.get("max.depth") or MAX_DEPTH

    @property
    def _lines(self) -> JsonLines:
        return JsonLines(self.values, self.files)

    def _start(self, path: str) -> bytes:
        with self._lines.stream(path, 0, None) as stream:
            return bytes(stream.read(SAMPLE)).removeprefix(BOM)

    def _all(self, path: str) -> bytes:
        with self._lines.stream(path, 0, None) as stream:
            content = read_whole(stream, path).removeprefix(BOM)
        try:
            content.decode()
        except UnicodeDecodeError as e:
            raise BadData(f'file "{path}" is not UTF-8: {e}') from None
        return content


def _text(value: Any) -> bytes:
    return text_of(value).encode(errors="backslashreplace")


def _is_lines(sample: bytes) -> bool:
    """Returns whether the first line is a complete object, with more after it."""
    first, _, rest = sample.lstrip().partition(b"\n")
    if not first.startswith(b"{") or not rest.strip():
        return False
    try:
        DECODER.decode(first.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _elements(text: str) -> Iterator[dict[str, Any]]:
    """Yields the objects of the beginning of an array, up to where it is cut off."""
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
