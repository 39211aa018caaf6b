"""Defines the contract of a file format, and finds formats.

A format is one file in this folder with one subclass of Format. It is found by its name (``'format' = 'csv'``) or by
the suffix of a file, without ``.gz`` or ``.zst``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from millpond.errors import BadData, NotSupported, UnknownName, did_you_mean
from millpond.extensions import classes_in, offered, offered_class, offered_classes
from millpond.formats.merge import is_numeric, merge_types
from millpond.formats.parquet_footers import Differs
from millpond.formats.read_records import Part, Received, RejectedRecord, no_rows
from millpond.formats.text import guess
from millpond.types import Schema, type_name

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_CORRECT = 'correct the file, or declare column "{column}" with a type that holds the value'


@dataclass(frozen=True, slots=True)
class Piece:
    """Describes a part of a file that can be read separately.

    For a file that is divided by bytes: the bytes from ``begin`` to before ``end``, or to its end; a record begins at
    each. For others the number of the first row and of the rows, and the row groups or blocks.
    """

    first_row: int = 0
    rows: int | None = None
    groups: tuple[int, ...] = ()
    begin: int = 0
    end: int | None = None


class Format(ABC):
    """Reads files of one format. Picklable.

    ``values`` are the options of the source that it knows. The paths are those of ``files``, or local paths without it.
    """

    name: ClassVar[str]
    guesses: ClassVar[bool] = True
    """Whether types are inferred from text."""
    suffixes: ClassVar[tuple[str, ...]]

    def __init__(self, values: Mapping[str, Any] | None = None, files: FileSystem | None = None):
        self.values = dict(values or {})
        self.files = files

    def open(self, path: str) -> pa.NativeFile:
        """Opens the bytes of a file, decompressed if its suffix says that it is compressed."""
        for suffix, codec in COMPRESSIONS.items():
            if path.lower().endswith(suffix):
                return pa.CompressedInputStream(self.open_file(path), codec)
        return self.open_file(path)

    def open_file(self, path: str) -> pa.NativeFile:
        """Opens the bytes of a file as they are, with random access."""
        return pa.OSFile(path, "rb") if self.files is None else self.files.open_input_file(path)

    @abstractmethod
    def discover(self, path: str) -> Schema:
        """Returns the columns, from a bounded sample: none if the file is empty, VOID where there is no value."""

    def fresh(self, path: str, known: Schema, piece: Piece) -> Schema:
        """Returns the columns of a piece, from a bounded sample of it, that are not among the known ones; VOID where
        there is no value.
        """
        return Schema(tuple(c for c in self.discover(path) if c.name not in known))

    def grows(self, path: str) -> bool:
        """Returns whether records can be appended to a file, and read without those before: then it can be divided by
        bytes.
        """
        return False

    def complete(self, path: str, begin: int, size: int, *, final: bool) -> int:
        """Returns the position after the last whole record of the first ``size`` bytes, from a record at ``begin`` on.

        A last line without a line break is whole if nothing will follow it (``final``).
        """
        return size

    def pieces(self, path: str, begin: int = 0, end: int | None = None) -> list[Piece]:
        """Returns the parts that can be read separately, in the order of their rows. For a file that grows, those of
        the bytes from ``begin`` to before ``end``, where records begin.
        """
        return [Piece(begin=begin, end=end)]

    def divided(self, path: str, piece: Piece, size: int) -> list[Piece]:
        """Returns a piece in parts of about so many bytes, in order, if that is possible."""
        return [piece]

    def bytes_for_spark(self, path: str, columns: pa.Schema, pieces: Sequence[Piece]) -> list[range]:
        """Returns the bytes of pieces, if Spark's own reader of Parquet returns these columns of the file as
        ``receive`` does. Raises Differs if that is not known.
        """
        raise Differs(f"it is {self.name}")

    @abstractmethod
    def parts(self, path: str, schema: Schema, piece: Piece, *, declared: bool) -> Iterator[Part]:
        """Yields the records of a piece in order, as ``receive`` returns them. Raises BadData if the rest cannot be
        read.
        """

    def receive(
        self, path: str, schema: Schema, piece: Piece | None = None, *, declared: bool = True
    ) -> Iterator[Received]:
        """Yields the rows of a piece in order, with exactly the columns and types of ``schema``.

        Columns are matched by name, ignoring case; a missing one is NULL and others are left out. A record that cannot
        be read, or has a value that does not fit, becomes an error record; ``declared`` says whether the hint is to
        declare the columns. If the rest of the piece cannot be read, it is one such record. Places are counted from 0
        in each piece. Memory does not grow with the file.
        """
        piece, first = piece or Piece(), 0
        try:
            for part in self.parts(path, schema, piece, declared=declared):
                yield part.received(first)
                first += part.records
        except BadData as error:
            yield Part(no_rows(schema.arrow()), [RejectedRecord(0, error, None)]).received(first)

    def read(
        self, path: str, schema: Schema, piece: Piece | None = None, *, declared: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Reads like ``receive``, but the first record that cannot be read raises BadData: with file, line or row,
        column and value.
        """
        for part in self.parts(path, schema, piece or Piece(), declared=declared):
            if part.rejected:
                raise part.rejected[0].error
            yield part.rows


@cache
def formats() -> tuple[type[Format], ...]:
    """Returns every format of this package."""
    return tuple(sorted(classes_in(__package__, Format), key=lambda f: f.name))


def suffix_of(path: str) -> str:
    """Returns the suffix that identifies the format: ``.csv`` of ``a.csv.gz``. Empty if there is none."""
    lowered = path.lower().rsplit("/", 1)[-1]
    for packed in COMPRESSIONS:
        lowered = lowered.removesuffix(packed)
    dot = lowered.rfind(".")
    return lowered[dot:] if dot >= 0 else ""


def is_packed(path: str) -> bool:
    return path.lower().endswith(tuple(COMPRESSIONS))


def has_known_suffix(path: str) -> bool:
    return _by_suffix(suffix_of(path)) is not None


def _by_suffix(suffix: str) -> type[Format] | None:
    """Returns the format of a suffix, of this package or else of another."""
    found = next((f for f in formats() if suffix in f.suffixes), None)
    if found is None and suffix:
        others = offered_classes("format", Format)
        found = next((f for f in others if suffix in f.suffixes), None)
    return found


def find_format(path: str, name: str | None = None) -> type[Format]:
    """Returns the format called ``name``, else the one of the file's suffix."""
    if name is not None:
        for known in formats():
            if name.lower() == known.name or f".{name.lower()}" in known.suffixes:
                return known
        other = offered_class("format", name, Format)
        if other is not None:
            return other
        names = [*(f.name for f in formats()), *offered("format")]
        raise UnknownName(
            f'format "{name}" is not known', hint=did_you_mean(name, names, f"known: {', '.join(names)}")
        )
    by_suffix = _by_suffix(suffix_of(path))
    if by_suffix is not None:
        return by_suffix
    listed = ", ".join(s for f in formats() for s in f.suffixes)
    raise NotSupported(
        f'the name of file "{path}" does not tell its format',
        hint=f"say it, for example WITH ('format' = 'csv'); known suffixes: {listed}",
    )


def misfit(
    where: str, column: str, dtype: pa.DataType, value: str, *, declared: bool, words: bool = False
) -> BadData:
    """Returns the error for a value that is not of its column's type; ``where`` names file and line, or is empty. For a
    discovered type it says which one to declare; if an option says which ``words`` are NULL, that one too.
    """
    shown = value if len(value) <= 100 else value[:100] + "…"
    message = f'"{shown}" in column "{column}" is not a {type_name(dtype)}'
    hint = _CORRECT.format(column=column)
    if not declared:
        holding = _holding(dtype, value)
        wanted = type_name(holding) if holding is not None else "with a type that holds it"
        message += f", which the first rows were: declare {column} {wanted}"
        hint = f"declare the columns, among them {column} {wanted}"
    else:
        holding = _holding(dtype, value)
    if words and holding == pa.string() and is_numeric(dtype):
        hint += f", or, if it stands for no value: 'null.value' = '{shown}'"
    return BadData(f"{where}: {message}" if where else message, hint=hint)


def _holding(dtype: pa.DataType, value: str) -> pa.DataType | None:
    """Returns a type that can represent a value in addition to those of a discovered one; None if it is nested."""
    if pa.types.is_nested(dtype):
        return None
    found = guess(pa.array([value.strip()]))
    return merge_types(dtype, found) if is_numeric(dtype) and is_numeric(found) else pa.string()
