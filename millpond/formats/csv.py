"""Reads CSV: comma or any other delimiter, quoted values with line breaks, with or without a header."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from millpond.errors import BadData, InvalidOption, NotSupported
from millpond.formats.base import Piece, suffix_of
from millpond.formats.blocks import BOM, LONGEST_RECORD, line_breaks
from millpond.formats.csvblock import CsvReader
from millpond.formats.csvrecords import CsvRecords
from millpond.formats.read_records import Part
from millpond.formats.text import further, guess, holds, only_word
from millpond.formats.textfile import TextFormat
from millpond.types import Column, Schema, type_name, whole

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_log = logging.getLogger(__name__)

SAMPLE_ROWS = 10_000
LOOK_ON = 2 << 20
"""Bytes of a file that are scanned for number types that the sample does not have."""
_HEAD = 64 << 10
"""Bytes that are first searched for the header."""


class Csv(TextFormat):
    """Reads CSV files. Unquoted, the null value is NULL; quoted, it is text."""

    name: ClassVar[str] = "csv"
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv")

    def __init__(self, values: Mapping[str, Any] | None = None, files: FileSystem | None = None):
        super().__init__(values, files)
        self._delimiter_option = self._character("delimiter", None)
        self._quote = self._character("quote", '"')
        self._escape = self._character("escape", None)

    def _character(self, name: str, default: str | None) -> str | None:
        """Returns an option that is one character, or none at all when it is empty."""
        value = self.values.get(name)
        text = default or "" if value is None else str(value).replace("\\t", "\t")
        if len(text) > 1 or not text.isascii():
            raise InvalidOption(f'option "{name}" cannot be "{text}"', hint="it is one character of ASCII")
        return text or None

    def discover(self, path: str) -> Schema:
        """Discovers the columns from the rows of the sample that can be read; the columns of the header if there is
        none.
        """
        names, _, _ = self._head(path)
        self._check_unique(path, names)
        texts = Schema(tuple(Column(n, pa.string()) for n in names))
        found: list[pa.RecordBatch] = []
        read = 0
        for part in self.parts(path, texts, Piece(), declared=False) if names else ():
            found.append(part.rows)
            read += part.rows.nbytes
            if sum(b.num_rows for b in found) >= SAMPLE_ROWS and read >= LOOK_ON:
                break
        if not any(b.num_rows for b in found):
            return Schema(tuple(Column(n, pa.null()) for n in names))
        every = pa.Table.from_batches(found)
        columns = []
        for name, column in zip(names, every.columns, strict=True):
            dtype = guess(whole(column.slice(0, SAMPLE_ROWS)))
            columns.append(Column(name, further(dtype, whole(column.slice(SAMPLE_ROWS)))))
            if columns[-1].type == pa.string():
                _offer_null(path, name, whole(column.slice(0, SAMPLE_ROWS)))
        return Schema(tuple(columns))

    def fresh(self, path: str, known: Schema, piece: Piece) -> Schema:
        names, _, _ = self._head(path)
        return Schema(()) if all(n in known for n in names) else super().fresh(path, known, piece)

    def records(self, path: str) -> CsvRecords:
        return CsvRecords(self._delimiter(path), self._quote, self._escape)

    def first(self, path: str) -> tuple[int, int]:
        return self._head(path)[1:]

    def parts(self, path: str, schema: Schema, piece: Piece, *, declared: bool) -> Iterator[Part]:
        names, _, _ = self._head(path)
        places = self._places(path, names, schema)
        if not names:
            return iter(())
        reader = CsvReader(
            schema.arrow(),
            places,
            len(names),
            self.records(path),
            {
                "delimiter": self._delimiter(path),
                "quote_char": self._quote or False,
                "escape_char": self._escape or False,
            },
            null=self.values.get("null.value") or "",
            declared=declared,
        )
        return self.decoded(path, piece, reader.read, schema.arrow())

    @property
    def _has_header(self) -> bool:
        return bool(self.values.get("header", True))

    def _delimiter(self, path: str) -> str:
        return self._delimiter_option or ("\t" if suffix_of(path) == ".tsv" else ",")

    def _head(self, path: str) -> tuple[list[str], int, int]:
        """Returns the names of the columns, and the position and line of the first row of data.

        An empty file has no names. Without a header, or for an empty name, they are ``_c0``, ``_c1``, ….
        """
        with self.stream(path, 0, None) as stream:
            data = bytes(stream.read(_HEAD))
            at = len(BOM) if data.startswith(BOM) else 0
            data, line, records = data[at:], 1, self.records(path)
            while data:
                ends = records.ends(data)
                record = data[: int(ends[0])] if len(ends) else data
                if not len(ends) and (more := bytes(stream.read(len(data)))):
                    data += more
                    if len(data) > 2 * (self.values.get("max.record") or LONGEST_RECORD):
                        raise BadData(f'file "{path}": its first line has no end', hint=records.hint)
                    continue
                if not record.strip(b"\r\n"):
                    at, line, data = at + len(record), line + 1, data[len(record) :]
                    continue
                fields = self._fields(path, record)
                if not self._has_header:
                    return [f"_c{i}" for i in range(len(fields))], at, line
                if any("\0" in name or "\ufffd" in name for name in fields):
                    raise BadData(
                        f'file "{path}": its first line is not text in UTF-8',
                        hint="convert the file to UTF-8; without a header: WITH ('header' = 'false')",
                    )
                names = [name.strip() or f"_c{i}" for i, name in enumerate(fields)]
                return names, at + len(record), line + line_breaks(record)
        return [], at, line

    def _fields(self, path: str, record: bytes) -> list[str]:
        text = record.decode(errors="replace")
        rows = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=self._delimiter(path),
            quotechar=self._quote,
            escapechar=self._escape,
            quoting=csv.QUOTE_MINIMAL if self._quote else csv.QUOTE_NONE,
        )
        try:
            return next(rows)
        except csv.Error as error:
            raise BadData(f'file "{path}": its first line is not CSV: {error}') from None

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
        """Returns where each column of the schema is in the file: by name, or by position without a header."""
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


def _offer_null(path: str, column: str, texts: pa.Array) -> None:
    """Reports a column that would be numeric except for one word."""
    word = only_word(texts)
    if word is not None:
        _tell_word(path, column, word)


@lru_cache(maxsize=1024)
def _tell_word(path: str, column: str, word: str) -> None:
    """Reports it once: files are read when they are checked, and again when they are loaded."""
    _log.warning(
        'file "%s": column "%s" is STRING, as one of its values is "%s", and all others are numbers;'
        " if it stands for no value: 'null.value' = '%s'",
        *(path, column, word, word),
    )
