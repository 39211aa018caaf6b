"""Decides which files rows are written to: their folders, names and sizes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.named_columns import named_columns
from millpond.errors import BadData, InvalidOption
from millpond.formats.avroschema import to_avro
from millpond.formats.base import COMPRESSIONS as SUFFIXES
from millpond.formats.base import find_format, has_known_suffix
from millpond.formats.base import suffix_of as known_suffix
from millpond.formats.file_writer import (
    COMPRESSIONS,
    TEXTS,
    WRITTEN,
    check_compression,
    encode_file,
    suffix_of,
)
from millpond.formats.jsontext import to_cells
from millpond.options import Option
from millpond.types import Schema

_NULL = "__HIVE_DEFAULT_PARTITION__"
_FIELD = re.compile(r"\{([^{}]*)\}")
_FIELDS = ("query", "app", "batch", "part")
_LONGEST = 255
"""Bytes of a name in a file system."""

LAYOUT_OPTIONS = (
    Option(
        "format",
        "choice",
        "csv, jsonl, parquet or avro; by default the suffix of the file decides, else jsonl",
        None,
        WRITTEN,
    ),
    Option(
        "compression",
        "choice",
        "none, gzip or zstd; for Parquet also snappy, its default. Otherwise the suffix of the file decides, else "
        "none",
        None,
        COMPRESSIONS,
    ),
    Option(
        "partition.by",
        "text",
        "columns whose values become folders: 'country, day' writes to country=AT/day=2024-05-06/. They stay in the "
        "files too",
    ),
    Option(
        "file.name",
        "text",
        "the names of files, without a suffix: {query} is the name of the query, {app} identifies the state directory, "
        "{batch} is the number of the batch, {part} that of the file in it",
        "{query}-{app}-{batch}-{part}",
    ),
    Option("file.size", "size", "the largest file: more rows than that are divided", 128 << 20),
    Option("overwrite", "bool", "whether a single file replaces one that exists", False),
    Option("header", "bool", "whether the first row of CSV contains the column names", True),
    Option("delimiter", "text", "the separator of values in CSV", ","),
)


class Part(NamedTuple):
    """Identifies one of the files of some rows: its folder, below the root, and its number."""

    folder: str
    number: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Contains how files are written. ``single`` is the path of the only one, if the URI names one."""

    root: str
    single: str | None
    form: str
    compression: str
    by: tuple[str, ...]
    name: str
    size: int
    header: bool
    delimiter: str

    def files(self, rows: pa.Table) -> Iterator[tuple[Part, bytes]]:
        """Yields the files of these rows."""
        if self.single is not None:
            yield Part("", 0), self._encode(rows)
            return
        number = 0
        for folder, some in self._divided(rows):
            for data in self._sized(some):
                yield Part(folder, number), data
                number += 1

    def path(self, part: Part, names: Mapping[str, str]) -> str:
        """Returns the path of a file, below the root."""
        if self.single is not None:
            return posixpath.basename(self.single)
        known = {**names, "part": f"{part.number:04d}"}
        name = _FIELD.sub(lambda m: known[m[1]], self.name)
        return posixpath.join(part.folder, name + suffix_of(self.form, self.compression))

    def check(self, rows: pa.Table) -> None:
        """Raises a DataError if the rows cannot be written."""
        self._encode(rows)
        for _ in self._divided(rows):
            pass

    def _encode(self, rows: pa.Table) -> bytes:
        return encode_file(rows, self.form, self.compression, header=self.header, delimiter=self.delimiter)

    def _sized(self, rows: pa.Table) -> Iterator[bytes]:
        data = self._encode(rows)
        count = min(-(-len(data) // self.size), rows.num_rows)
        if count < 2:
            yield data
            return
        step = -(-rows.num_rows // count)
        for first in range(0, rows.num_rows, step):
            yield self._encode(rows.slice(first, step))

    def _divided(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Yields the folders, sorted, with their rows, in their order."""
        if not self.by:
            yield "", rows
            return
        parts = [_folders(name, rows.column(name)) for name in self.by]
        coded = pc.binary_join_element_wise(*parts, "/").dictionary_encode()
        codes = np.asarray(coded.indices)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(coded.dictionary)))
        grouped = rows.take(pa.array(order))
        found = zip(coded.dictionary.to_pylist(), [0, *ends], ends, strict=False)
        for folder, first, end in sorted(found):
            yield folder, grouped.slice(first, end - first)


def _folders(name: str, column: pa.ChunkedArray) -> pa.Array:
    """Returns the name of a folder for each value. Each value that occurs is quoted once."""
    texts = to_cells(column).cast(pa.string()).dictionary_encode()
    safe = [_quoted(text) for text in texts.dictionary.to_pylist()]
    values = pa.array(safe, pa.string()).take(texts.indices)
    if any(len(_quoted(name)) + 1 + len(text) > _LONGEST for text in safe):
        raise BadData(f'a value of "{name}" is too long for the name of a folder')
    return pc.binary_join_element_wise(f"{_quoted(name)}=", pc.fill_null(values, _NULL), "")


def _quoted(text: str) -> str:
    """Returns a text as the name of a folder, which cannot lead elsewhere."""
    return quote(text, safe=" ,;:@+()!$&~") if text else _NULL


def layout_of(uri: str, path: str, values: Mapping[str, Any], schema: Schema) -> Layout:
    """Returns the layout that options ask for. Raises errors that name the option."""
    single = has_known_suffix(path)
    form = values["format"] or (find_format(path).name if single else "jsonl")
    if form not in WRITTEN:
        raise InvalidOption(
            f'"{uri}" cannot be written: files of {form} are only read', hint=f"known: {', '.join(WRITTEN)}"
        )
    if any(c in path for c in "*?"):
        raise InvalidOption(f'"{uri}" is a pattern, and cannot be written', hint="name a directory or a file")
    if single and find_format(path).name != form:
        raise InvalidOption(f'option "format" is {form}, and "{uri}" ends otherwise', hint="leave it out")
    codec = next((c for end, c in SUFFIXES.items() if single and path.lower().endswith(end)), None)
    compression = values["compression"] or codec or ("snappy" if form == "parquet" else "none")
    check_compression(form, compression)
    if codec is not None and (codec != compression or form not in TEXTS):
        raise InvalidOption(
            f'option "compression" is {compression}, and "{uri}" ends otherwise',
            hint="leave it out" if form in TEXTS else f"{form} is compressed inside: name the file x.{form}",
        )
    delimiter = values["delimiter"].replace("\\t", "\t")
    if single and delimiter == "," and known_suffix(path) == ".tsv":
        delimiter = "\t"
    if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise InvalidOption(
            f'option "delimiter" cannot be "{values["delimiter"]}"',
            hint="it is one character of ASCII, not a quote or a line break",
        )
    if form == "avro":
        to_avro(schema, "row")
    _check_name(values["file.name"])
    by = named_columns("partition.by", values["partition.by"], schema.names)
    if by and single:
        raise InvalidOption(f'option "partition.by" needs a directory, and "{uri}" names a file')
    root = posixpath.dirname(path) if single else path
    return Layout(
        root,
        path if single else None,
        form,
        compression,
        by,
        values["file.name"],
        max(values["file.size"], 1),
        values["header"],
        delimiter,
    )


def _check_name(pattern: str) -> None:
    for name in _FIELD.findall(pattern):
        if name not in _FIELDS:
            raise InvalidOption(
                f'option "file.name" has "{{{name}}}", which is not known',
                hint="known: " + ", ".join(f"{{{n}}}" for n in _FIELDS),
            )
    plain = _FIELD.sub("", pattern)
    if "/" in plain or "\\" in plain or "\0" in plain or pattern.startswith((".", "_")):
        raise InvalidOption(
            f'option "file.name" cannot be "{pattern}"',
            hint="it is a name without folders that does not begin with a dot or an underscore",
        )
    for needed in ("{batch}", "{part}", "{query}", "{app}"):
        if needed not in pattern:
            raise InvalidOption(
                f'option "file.name" lacks {needed}', hint="without it files would have the same name"
            )
