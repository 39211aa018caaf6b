"""CSV: comma or any other delimiter, quoted values with line breaks, with or without a header."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyarrow import csv as arrow_csv

from millpond.errors import BadData, InvalidOption, NotSupported
from millpond.formats.base import Format, Piece, misfit, suffix_of
from millpond.formats.text import Misfit, convert, guess, holds
from millpond.types import Column, Schema, type_name, whole

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

BLOCK = 1 << 20
LARGEST_BLOCK = 1 << 28
SAMPLE_ROWS = 10_000


class Csv(Format):
    """Every column is parsed as text and converted a block at a time; that costs no more than Arrow's own
    conversion and leaves the text for errors. Unquoted, the null value is NULL; quoted, it is text."""

    name: ClassVar[str] = "csv"
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv")

    def __init__(self, values: Mapping[str, Any] | None = None, files: FileSystem | None = None):
        super().__init__(values, files)
        self._delimiter_option = self._character("delimiter", None)
        self._quote = self._character("quote", '"')
        self._escape = self._character("escape", None)

    def _character(self, name: str, default: str | None) -> str | None:
        """An option that is one character, or none at all when it is empty."""
        value = self.values.get(name)
        text = default or "" if value is None else str(value).replace("\\t", "\t")
        if len(text) > 1:
            raise InvalidOption(f'option "{name}" cannot be "{text}"', hint="it is one character")
        return text or None

    def discover(self, path: str) -> Schema:
        names, skip = self._head(path)
        batches: list[pa.RecordBatch] = []
        for batch in self._texts(path, len(names), skip):
            batches.append(batch)
            if sum(b.num_rows for b in batches) >= SAMPLE_ROWS:
                break
        self._check_unique(path, names)
        if not batches:
            return Schema(tuple(Column(n, pa.null()) for n in names))
        sample = pa.Table.from_batches(batches).slice(0, SAMPLE_ROWS).combine_chunks()
        return Schema(tuple(Column(n, guess(whole(c))) for n, c in zip(names, sample.columns, strict=True)))

    def read(
        self, path: str, schema: Schema, piece: Piece | None = None, *, declared: bool = True
    ) -> Iterator[pa.RecordBatch]:
        names, skip = self._head(path)
        places = self._places(path, names, schema)
        arrow = schema.arrow()
        row = 0
        for batch in self._texts(path, len(names), skip):
            arrays = []
            for field, place in zip(arrow, places, strict=True):
                if place is None:
                    arrays.append(pa.nulls(batch.num_rows, field.type))
                    continue
                try:
                    arrays.append(convert(batch.column(place), field.type))
                except Misfit as e:
                    where = self._where(path, self._has_header + row + e.index)
                    raise misfit(path, where, field.name, field.type, e.value, declared=declared) from None
            row += batch.num_rows
            yield pa.RecordBatch.from_arrays(arrays, schema=arrow)

    @property
    def _has_header(self) -> bool:
        return bool(self.values.get("header", True))

    def _delimiter(self, path: str) -> str:
        return self._delimiter_option or ("\t" if suffix_of(path) == ".tsv" else ",")

    def _python_rows(self, path: str, stream: pa.NativeFile) -> Any:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
        return csv.reader(
            text,
            delimiter=self._delimiter(path),
            quotechar=self._quote,
            escapechar=self._escape,
            quoting=csv.QUOTE_MINIMAL if self._quote else csv.QUOTE_NONE,
        )

    def _head(self, path: str) -> tuple[list[str], int]:
        """The names of the columns, and how many rows stand before the first row of data.

        An empty file has no names. Without a header, or for an empty name, they are ``_c0``, ``_c1``, ….
        """
        with self.open(path) as stream:
            blank = 0
            for fields in self._python_rows(path, stream):
                if not fields:
                    blank += 1
                    continue
                if self._has_header and any("\0" in name or "\ufffd" in name for name in fields):
                    raise BadData(
                        f'file "{path}": its first line is not text in UTF-8',
                        hint="convert the file to UTF-8; without a header: WITH ('header' = 'false')",
                    )
                if not self._has_header:
                    return [f"_c{i}" for i in range(len(fields))], 0
                return [name.strip() or f"_c{i}" for i, name in enumerate(fields)], blank + 1
        return [], 0

    def _check_unique(self, path: str, names: list[str]) -> None:
        seen: set[str] = set()
        for name in names:
            if name.lower() in seen:
                raise BadData(
                    f'file "{path}" has two columns "{name}"',
                    hint="rename one of them in the file",
                )
            seen.add(name.lower())

    def _places(self, path: str, names: list[str], schema: Schema) -> list[int | None]:
        """Where each column of the schema stands in the file: by name, or by position without a header."""
        if self._has_header:
            lowered = [n.lower() for n in names]
            places = [lowered.index(c.name.lower()) if c.name.lower() in lowered else None for c in schema]
        else:
            places = [i if i < len(names) else None for i in range(len(schema))]
        for column, place in zip(schema, places, strict=True):
            if place is not None and column.type is not None and not holds(column.type):
                raise NotSupported(
                    f'column "{column.name}" {type_name(column.type)} cannot be read from CSV',
                    hint="declare it STRING and take it apart in the query, for example with from_json",
                )
        if names and all(p is None for p in places):
            raise BadData(
                f'the header of file "{path}" has none of the columns {", ".join(schema.names)}',
                hint=f"it has {', '.join(names)}; if that is data, say WITH ('header' = 'false')",
            )
        self._check_unique(path, [names[p] for p in places if p is not None])
        return places

    def _texts(self, path: str, width: int, skip: int) -> Iterator[pa.RecordBatch]:
        """The rows as text. A row larger than a block is read again with larger blocks."""
        block, done = BLOCK, 0
        while width:
            try:
                again = done
                for batch in self._blocks(path, width, skip, block):
                    fresh = batch.slice(min(again, batch.num_rows))
                    again -= batch.num_rows - fresh.num_rows
                    done += fresh.num_rows
                    if fresh.num_rows:
                        yield fresh
                return
            except pa.ArrowInvalid as e:
                if "straddl" not in str(e):
                    raise self._broken(path, str(e)) from None
                if block >= LARGEST_BLOCK:
                    where = self._where(path, self._has_header + done)
                    raise BadData(
                        f'file "{path}", {where}: a row of more than {block >> 20} MB',
                        hint="a quote may not be closed there",
                    ) from None
            if self._is_short(path, skip):
                return
            block = min(block * 8, LARGEST_BLOCK)

    def _blocks(self, path: str, width: int, skip: int, block: int) -> Iterator[pa.RecordBatch]:
        names = [f"_c{i}" for i in range(width)]
        with self.open(path) as stream:
            reader = arrow_csv.open_csv(
                stream,
                read_options=arrow_csv.ReadOptions(
                    use_threads=False,
                    block_size=block,
                    column_names=names,
                    skip_rows_after_names=skip,
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._delimiter(path),
                    quote_char=self._quote or False,
                    escape_char=self._escape or False,
                    newlines_in_values=True,
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[self.values.get("null.value") or ""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            yield from reader

    def _broken(self, path: str, reason: str) -> BadData:
        """What Arrow says of rows it cannot parse, with the line."""
        row = re.search(r"Row #(\d+): (?:CSV parse error: )?(.*)", reason, re.DOTALL)
        if row is None:
            return BadData(f'file "{path}" is not CSV: {reason}')
        where = self._where(path, int(row[1]) - 1)
        width = re.match(r"Expected (\d+) columns, got (\d+)", row[2])
        if width is None:
            return BadData(f'file "{path}", {where}: {row[2]}')
        return BadData(
            f'file "{path}", {where}: {width[2]} values where there are {width[1]} columns',
            hint="correct the file, or check the options 'delimiter' and 'quote'",
        )

    def _is_short(self, path: str, skip: int) -> bool:
        """Whether the file ends within its header, which Arrow takes for a row that is too long."""
        with self.open(path) as stream:
            return next(islice(self._python_rows(path, stream), skip, None), None) is None

    def _where(self, path: str, row: int) -> str:
        """The line on which a row of the file begins (0-based, the header counts), for an error."""
        begin, seen = 1, -1
        with self.open(path) as stream:
            rows = self._python_rows(path, stream)
            try:
                for fields in rows:
                    seen += bool(fields)
                    if seen == row:
                        return f"line {begin}"
                    begin = rows.line_num + 1
            except csv.Error:
                pass
        return f"row {row + 1}"
