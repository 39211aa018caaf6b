"""Reads JSON lines: one object on each line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from itertools import islice, takewhile
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import BadData
from millpond.formats.base import Piece
from millpond.formats.blocks import Block, Lines, count_of, is_text
from millpond.formats.jsonblock import BlockReader, Records
from millpond.formats.jsondepth import MAX_DEPTH, is_deeper, may_be_deeper
from millpond.formats.jsontypes import discover_records
from millpond.formats.jsonvalues import DECODER
from millpond.formats.merge import settle_schema, widen_numbers
from millpond.formats.read_records import Part, RejectedRecord, no_rows
from millpond.formats.textfile import TextFormat, Where
from millpond.types import NUMBER, Schema

SAMPLE_ROWS = 10_000
LOOK_ON = 2 << 20
"""Bytes of a file that are scanned for number types that the sample does not have."""
_PLAIN = (pa.bool_(), pa.int64(), NUMBER, pa.float64(), pa.string())
"""Types of which the first lines show what all have, if all can be read so."""
_OPEN, _CLOSE = b"{}"
_FEW = 128
"""Lines that are read value by value without halving."""
Line = tuple[int, bytes]
"""Where a line begins in its block, and the line."""
_LOOK = 64 << 10
"""Bytes that are searched for the end of a line."""


class JsonLines(TextFormat):
    name: ClassVar[str] = "jsonl"
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")

    def discover(self, path: str) -> Schema:
        """Discovers the columns from the lines of the sample that can be read; raises BadData if none can."""
        blocks = self.blocks(path, 0, None)
        block = next(blocks, None)
        if block is None:
            return Schema(())
        further = takewhile(lambda b: b.begin < LOOK_ON, blocks)
        found = self._quickly(block)
        if found is not None:
            return reduce(partial(self._with_numbers, path), further, found)
        lines, where = _lines(block.data), Where(path, block, 1)
        rows, bad = self._parse(lines[:SAMPLE_ROWS], where)
        if not rows.rows:
            rows, bad = self._parse(lines, where)
        if bad and not rows.rows:
            raise bad[0].error
        if not rows.rows:
            return Schema(())
        found = discover_records(islice(rows.rows, SAMPLE_ROWS))
        return reduce(partial(self._with_numbers, path), further, self._with_numbers(path, found, block))

    def _quickly(self, block: Block) -> Schema | None:
        """Returns the columns that the first lines of a block have, if all others have exactly the same; else None."""
        if block.wrong is not None or not is_text(block.data):
            return None
        head = b"\n".join(block.data.split(b"\n", _FEW)[:_FEW])
        rows, bad = self._parse(_lines(head), Where("", block, None))
        found = discover_records(rows.rows)
        plain = bool(rows.rows) and not bad and all(_is_plain(c.type) for c in found)
        reader = BlockReader(found, declared=False, watch=True)
        batch = self._read_native(reader, block.data) if plain else None
        same = batch is not None and not reader.unknown and not _has_wide_number(batch)
        return found if same else None

    def _with_numbers(self, path: str, found: Schema, block: Block) -> Schema:
        """Returns the columns with types that can represent the numbers of a block too."""
        reader = BlockReader(settle_schema(found), declared=False)
        fits = is_text(block.data) and self._read_native(reader, block.data) is not None
        if fits or block.wrong is not None:
            return found
        rows = self._parse(_lines(block.data), Where(path, block, None))[0].rows
        return widen_numbers(found, discover_records(rows))

    def fresh(self, path: str, known: Schema, piece: Piece) -> Schema:
        block = next(self.blocks(path, piece.begin, piece.end), None)
        if block is None or block.wrong is not None:
            return Schema(())
        reader = BlockReader(known, declared=False, watch=True)
        if is_text(block.data) and self._read_native(reader, block.data) is not None and not reader.unknown:
            return Schema(())
        rows = self._parse(_lines(block.data), Where(path, block, None))[0].rows
        others = ({n: v for n, v in row.items() if n not in known} for row in islice(rows, SAMPLE_ROWS))
        return discover_records(r for r in others if r)

    def records(self, path: str) -> Lines:
        return Lines()

    def cuts(self, path: str, begin: int, end: int, about: int) -> list[int]:
        """Finds line breaks near the cuts; does not read the lines in between."""
        found: list[int] = []
        at = begin + about
        while at < end:
            with self.stream(path, at - 1, end) as stream:
                while data := bytes(stream.read(_LOOK)):
                    if (place := data.find(b"\n") + 1) > 0:
                        at += place - 1
                        break
                    at += len(data)
            if at < end:
                found.append(at)
            at += about
        return found

    def complete(self, path: str, begin: int, size: int, *, final: bool) -> int:
        """Searches the last line break from the end."""
        at = size
        while at > begin and not final and self.grows(path):
            first = max(begin, at - _LOOK)
            with self.stream(path, first, at) as stream:
                if (place := bytes(stream.read()).rfind(b"\n") + 1) > 0:
                    return first + place
            at = first
        return at

    def parts(self, path: str, schema: Schema, piece: Piece, *, declared: bool) -> Iterator[Part]:
        reader = BlockReader(schema, declared=declared)
        return self.decoded(path, piece, partial(self._read, reader), reader.arrow)

    @property
    def _depth(self) -> int:
        return self.values.get("max.depth") or MAX_DEPTH

    def _read(self, reader: BlockReader, block: Block, where: Where) -> Part:
        if not block.data.strip():
            return Part(no_rows(reader.arrow))
        if is_text(block.data):
            rows = self._read_native(reader, block.data)
            if rows is not None:
                return Part(rows)
        lines = _lines(block.data)
        if reader.by_value:
            return self._read_values(reader, lines, where)
        parts = list(self._halved(reader, lines, where))
        # If nothing was bad and most lines had to be read by value, other blocks are read so at once.
        alone = sum(p.records for p in parts if p.records <= _FEW)
        reader.by_value = 2 * alone > len(lines) and not any(p.rejected for p in parts)
        return _together(parts, reader.arrow)

    def _halved(self, reader: BlockReader, lines: list[Line], where: Where) -> Iterator[Part]:
        """Reads the parts of lines that Arrow's reader can read, and the others a few at a time by value."""
        if len(lines) <= _FEW:
            yield self._read_values(reader, lines, where)
            return
        half = (len(lines) + 1) // 2
        for some in (lines[:half], lines[half:]):
            data = b"\n".join(text for _, text in some)
            rows = self._read_native(reader, data) if is_text(data) else None
            if rows is not None:
                yield Part(rows)
            else:
                yield from self._halved(reader, some, where)

    def _read_values(self, reader: BlockReader, lines: list[Line], where: Where) -> Part:
        records, bad = self._parse(lines, where)
        try:
            return Part(reader.read_values(records), bad)
        except BadData:
            rows, errors = reader.read_fitting(records)
        wrong = {s.place for s in bad}
        good = [place for place in range(len(lines)) if place not in wrong]
        more = [RejectedRecord(good[i], error, lines[good[i]][1]) for i, error in errors.items()]
        return Part(rows, sorted([*bad, *more], key=lambda s: s.place))

    def _read_native(self, reader: BlockReader, data: bytes) -> pa.RecordBatch | None:
        """Reads text without looking at single values: if all lines have the same form, or with Arrow's reader, if each
        line is one object."""
        rows = reader.read_flat(data)
        if rows is not None:
            return rows
        lines = _objects(data)
        if lines is None or may_be_deeper(lines, self._depth):
            return None
        rows = reader.read_native(lines)
        return rows if rows is not None and rows.num_rows == count_of(lines, 10) else None

    def _parse(self, lines: list[Line], where: Where) -> tuple[Records, list[RejectedRecord]]:
        """Returns the records of lines, and the lines that are not records."""
        found, offsets, bad = [], [], []
        for place, (offset, text) in enumerate(lines):
            try:
                found.append(_parse_line(text, self._depth))
                offsets.append(offset)
            except BadData as error:
                at = BadData(f"{where(offset)}: {error.message}", hint=error.hint)
                bad.append(RejectedRecord(place, at, text))
        return Records(found, lambda index: where(offsets[index])), bad


def _is_plain(dtype: pa.DataType | None) -> bool:
    return dtype in _PLAIN


def _has_wide_number(rows: pa.RecordBatch) -> bool:
    """Returns whether a whole number among others with a point may be beyond BIGINT, which makes them DOUBLE."""
    found = [pc.max(pc.abs(c)).as_py() for c in rows.columns if c.type == NUMBER]
    return any(largest is not None and largest >= 1 << 63 for largest in found)


def _objects(data: bytes) -> bytes | None:
    """Returns the lines, each with a line break at its end, without blank ones and blanks around them, if each begins
    and ends like an object. Then, as Arrow's reader treats a line break like any other space, as many objects as lines
    are one object on each line.
    """
    if not data.endswith(b"\n"):
        data += b"\n"
    if _are_enclosed(data):
        return data
    lines = [line.strip() for line in data.split(b"\n")]
    data = b"".join(line + b"\n" for line in lines if line)
    return data if _are_enclosed(data) else None


def _are_enclosed(lines: bytes) -> bool:
    text = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(text == 10)
    begins = np.append(0, ends[:-1] + 1)
    return bool((text[begins] == _OPEN).all() and (text[ends - 1] == _CLOSE).all())


def _lines(data: bytes) -> list[Line]:
    """Returns the lines that are not blank, and where they begin."""
    found, offset = [], 0
    for line in data.split(b"\n"):
        if line.strip():
            found.append((offset, line.rstrip(b"\r")))
        offset += len(line) + 1
    return found


def _together(parts: list[Part], arrow: pa.Schema) -> Part:
    rows = pa.Table.from_batches([p.rows for p in parts], arrow).combine_chunks().to_batches()
    rejected: list[RejectedRecord] = []
    first = 0
    for part in parts:
        rejected += [s._replace(place=first + s.place) for s in part.rejected]
        first += part.records
    return Part(rows[0] if rows else no_rows(arrow), rejected)


def _parse_line(text: bytes, depth: int) -> dict[str, object]:
    if is_deeper(text, depth):
        raise BadData(f"nested deeper than {depth} levels", hint="raise 'max.depth' if it is meant to be")
    try:
        record = DECODER.decode(text.decode())
    except (ValueError, RecursionError) as e:
        raise BadData(f"not JSON: {e}") from None
    if not isinstance(record, dict):
        raise BadData(
            "not a JSON object", hint="a file with one array of objects is read WITH ('format' = 'json')"
        )
    return record
