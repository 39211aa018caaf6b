"""Decodes a block of CSV to rows. Each column is parsed as text and converted as a whole, which costs no more than
Arrow's own conversion and leaves the text for errors. Only a block with a bad record is decoded record by record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from millpond.errors import BadData
from millpond.formats.base import misfit
from millpond.formats.blocks import Block, Positions, is_text
from millpond.formats.csvrecords import CsvRecords
from millpond.formats.read_records import Part, RejectedRecord, bad_places, no_rows
from millpond.formats.text import Misfit, convert, misfits
from millpond.formats.textfile import Where
from millpond.types import whole

_WIDTH = "correct the file, or check the options 'delimiter' and 'quote'"


class CsvReader:
    """Reads the blocks of files with one header. ``places`` are the indexes of the columns among ``width`` values."""

    def __init__(
        self,
        arrow: pa.Schema,
        places: Sequence[int | None],
        width: int,
        records: CsvRecords,
        parsing: Mapping[str, Any],
        *,
        null: str,
        declared: bool,
    ):
        self.arrow = arrow
        self.declared = declared
        self._places = places
        self._records = records
        self._parsing = dict(parsing)
        self._names = [f"_c{i}" for i in range(width)]
        wanted = [self._names[p] for p in places if p is not None]
        self._convert = arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(self._names, pa.string()),
            include_columns=list(dict.fromkeys(wanted)),
            null_values=[null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,
        )

    def read(self, block: Block, where: Where) -> Part:
        if is_text(block.data):
            try:
                return Part(self._rows(self._texts(block.data)))
            except (pa.ArrowInvalid, Misfit):
                pass
        return self._read_slowly(block.data, where)

    def _texts(self, data: bytes, wrong: list[Any] | None = None) -> pa.Table:
        """Returns the values as text. Rows of another width are added to ``wrong``, or raise ArrowInvalid."""

        def skip(row: Any) -> str:
            assert wrong is not None
            wrong.append(row)
            return "skip"

        options = arrow_csv.ParseOptions(
            **self._parsing,
            newlines_in_values=True,
            invalid_row_handler=None if wrong is None else skip,
        )
        reading = arrow_csv.ReadOptions(
            use_threads=False, block_size=len(data) + 16, column_names=self._names
        )
        return arrow_csv.read_csv(pa.BufferReader(data), reading, options, self._convert).combine_chunks()

    def _rows(self, texts: pa.Table) -> pa.RecordBatch:
        arrays = []
        for field, place in zip(self.arrow, self._places, strict=True):
            if place is None:
                arrays.append(pa.nulls(texts.num_rows, field.type))
            else:
                arrays.append(convert(whole(texts[self._names[place]]), field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _read_slowly(self, data: bytes, where: Where) -> Part:
        """Returns the rows of the records that can be read; the others are recorded, each with its own reason."""
        lines, offsets = self._lines(data)
        errors: dict[int, BadData] = {}
        here = np.arange(len(lines))
        if not is_text(data):
            for place in bad_places(len(lines), lambda a, b: is_text(_joined(lines[a:b]))):
                errors[place] = BadData(f"{where(int(offsets[place]))}: invalid UTF8 data")
            here = np.delete(here, list(errors))
        wrong: list[Any] = []
        texts = self._texts(_joined(lines.take(pa.array(here))), wrong) if len(here) else None
        for row in wrong:
            place = int(here[row.number - 1])
            width = f"{row.actual_columns} values where there are {row.expected_columns} columns"
            errors[place] = BadData(f"{where(int(offsets[place]))}: {width}", hint=_WIDTH)
        here = np.delete(here, [row.number - 1 for row in wrong])
        rows = no_rows(self.arrow)
        if texts is not None:
            assert texts.num_rows == len(here)
            bad = self._misfits(texts, where, here, offsets)
            errors |= bad
            good = pa.array(~np.isin(here, list(bad)))
            rows = self._rows(texts.filter(good).combine_chunks())
        rejected = [RejectedRecord(p, errors[p], lines[p].as_py().rstrip(b"\r\n")) for p in sorted(errors)]
        return Part(rows, rejected)

    def _misfits(
        self, texts: pa.Table, where: Where, here: Positions, offsets: Positions
    ) -> dict[int, BadData]:
        """Returns the rows with a value that does not fit: of each the first column that has one."""
        errors: dict[int, BadData] = {}
        for field, place in zip(self.arrow, self._places, strict=True):
            if place is None:
                continue
            column = whole(texts[self._names[place]])
            for index in misfits(column, field.type):
                at = int(here[index])
                if at not in errors:
                    errors[at] = misfit(
                        where(int(offsets[at])),
                        field.name,
                        field.type,
                        column[index].as_py(),
                        declared=self.declared,
                        words=True,
                    )
        return errors

    def _lines(self, data: bytes) -> tuple[pa.Array, Positions]:
        """Returns the records that are not empty, and where they begin."""
        ends = self._records.ends(data)
        stops = ends if len(ends) and ends[-1] == len(data) else np.append(ends, len(data))
        begins = np.append(0, stops[:-1])
        full = ~np.isin(np.frombuffer(data, np.uint8)[begins], (10, 13))
        return _cut(data, stops).filter(pa.array(full)), begins[full]


def _cut(data: bytes, stops: Positions) -> pa.Array:
    offsets = pa.py_buffer(np.append(0, stops).astype(np.int64))
    return pa.Array.from_buffers(pa.large_binary(), len(stops), [None, offsets, pa.py_buffer(data)])


def _joined(lines: pa.Array) -> bytes:
    return b"".join(lines.to_pylist())
