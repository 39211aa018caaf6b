"""Decodes a block of JSON records to a batch: with Arrow's reader where that is exact, else value by value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import BadData
from millpond.formats.base import misfit
from millpond.formats.decimals import MAX_DIGITS
from millpond.formats.jsonflat import read_flat
from millpond.formats.jsonvalues import column_of, field_of
from millpond.formats.read_records import bad_places
from millpond.formats.text import Misfit, convert
from millpond.types import Schema, whole

Path = tuple[str, ...]
LARGEST_BLOCK = (1 << 31) - 64
"""The limit of Arrow's reader, which uses 32-bit lengths."""

_UNEVEN = 4
"""Blocks with lines of several forms, one after another, after which others are expected to have such too."""
_TINY = r'[:\[,]\s*"?\s*[+-]?[0-9.]+[eE]-[0-9]{3,}\s*["\],}]'


@dataclass(frozen=True)
class Records:
    """Contains parsed records, and the place of each for errors (``file "a.jsonl", line 3``)."""

    rows: Sequence[dict[str, Any]]
    where: Callable[[int], str]


class BlockReader:
    """Reads the blocks of one file. May be called from several threads."""

    def __init__(self, schema: Schema, *, declared: bool, watch: bool = False):
        self.declared = declared
        self.watch = watch
        self.unknown: set[Path] = set()
        """With ``watch``: the fields that were found and are not in the schema, by their paths."""
        self.arrow = schema.arrow()
        self._native = all(_is_native(f.type) or _is_time(f.type) for f in self.arrow)
        scales = [scale for f in self.arrow for scale in _scales(f.type)]
        self._decimals = bool(scales)
        self._digits = MAX_DIGITS - max(scales, default=0)
        self._spelling = {f.name: f.name for f in self.arrow}
        self._uneven = 0
        """How many of the last blocks did not have lines of the same form."""
        self.by_value = not self._native
        """Whether blocks that Arrow's reader fails on are read value by value, without searching for parts that it can
        read.
        """

    def read(self, block: bytes, parse: Callable[[], Records], *, enclosed: bool = False) -> pa.RecordBatch:
        """Reads the records of a block of JSON lines, or of one ``enclosed`` in an array.

        ``parse`` is called when Arrow's reader fails or its result may not be right.
        """
        batch = self.read_native(block, enclosed=enclosed)
        return self.read_values(parse()) if batch is None else batch

    def read_flat(self, lines: bytes) -> pa.RecordBatch | None:
        """Reads lines in UTF-8 that all have the same form, faster than Arrow's reader; returns None for others."""
        if not self._native or self._uneven >= _UNEVEN or len(lines) > LARGEST_BLOCK:
            return None
        flat = read_flat(lines, self.arrow)
        self._uneven = self._uneven + 1 if flat is None else 0
        if flat is not None and self.watch:
            self.unknown |= {(name,) for name in flat.others}
        return None if flat is None else flat.rows

    def read_native(self, block: bytes, *, enclosed: bool = False) -> pa.RecordBatch | None:
        """Reads like ``read``; returns None when Arrow's reader fails or its result may not be right."""
        from pyarrow import json as arrow_json

        native = self._native and len(block) <= LARGEST_BLOCK
        if not native or (self._decimals and _has_tiny_number(block)):
            return None

        spelling = dict(self._spelling)
        wide = self._decimals and _may_wrap(block, self._digits)
        fields = [
            pa.field(spelling[f.name], pa.string() if _is_time(f.type) else _exact(f.type, wide=wide))
            for f in self.arrow
        ]
        explicit = pa.schema(fields)
        if enclosed:
            block = b'{"rows":' + block + b"}"
            explicit = pa.schema([pa.field("rows", pa.list_(pa.struct(fields)))])
        try:
            table = arrow_json.read_json(
                pa.BufferReader(block),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=max(len(block), 16)),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=explicit,
                    unexpected_field_behavior="infer" if self.watch else "ignore",
                    newlines_in_values=enclosed,
                ),
            )
            columns = self._columns(table, enclosed)
            unknown = set[Path]()
            if self.watch:
                columns = [_narrow(c, f.type) for c, f in zip(columns, fields, strict=False)]
                unknown = set(_more(table.schema, explicit))
            if self._may_be_spelled_otherwise(block, columns, spelling):
                return None
            arrays = []
            for field, column in zip(self.arrow, columns, strict=True):
                if _is_time(field.type):
                    column = convert(column, field.type, empty_is_null=False)
                arrays.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, Misfit):
            return None
        self.unknown |= unknown
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _columns(self, table: pa.Table, enclosed: bool) -> list[pa.Array]:
        table = table.combine_chunks()
        if not enclosed:
            return [whole(c) for c in table.columns]
        structs = whole(table.column(0)).flatten()
        if structs.null_count:
            raise pa.ArrowInvalid("a record is null")
        return list(structs.flatten())

    def _may_be_spelled_otherwise(
        self, block: bytes, columns: Sequence[pa.Array], spelling: dict[str, str]
    ) -> bool:
        """Returns whether a column with NULLs occurs in other spellings, which Arrow's reader would not see."""
        lowered: bytes | None = None
        for field, column in zip(self.arrow, columns, strict=True):
            if column.null_count:
                lowered = block.lower() if lowered is None else lowered
                key = b'"' + spelling[field.name].encode() + b'"'
                if lowered.count(key.lower()) != block.count(key):
                    return True
        return False

    def read_values(self, records: Records) -> pa.RecordBatch:
        """Returns the rows of parsed records. Raises BadData."""
        arrays = []
        for field in self.arrow:
            try:
                arrays.append(self._column(records.rows, field))
            except Misfit as e:
                raise self._misfit(records, field, e) from None
        return self._made(records.rows, arrays)

    def read_fitting(self, records: Records) -> tuple[pa.RecordBatch, dict[int, BadData]]:
        """Returns the rows of the records that fit; the others by their number, with the first misfit."""
        errors: dict[int, BadData] = {}
        for field in self.arrow:

            def is_fine(begin: int, end: int, field: pa.Field = field) -> bool:
                try:
                    self._column(records.rows[begin:end], field)
                except Misfit:
                    return False
                return True

            for index in bad_places(len(records.rows), is_fine):
                try:
                    self._column(records.rows[index : index + 1], field)
                except Misfit as e:
                    errors.setdefault(index, self._misfit(records, field, Misfit(index, e.value)))
        rows = [r for i, r in enumerate(records.rows) if i not in errors]
        return self._made(rows, [self._column(rows, f) for f in self.arrow]), errors

    def _column(self, rows: Sequence[dict[str, Any]], field: pa.Field) -> pa.Array:
        return column_of([field_of(r, field.name) for r in rows], field.type)

    def _misfit(self, records: Records, field: pa.Field, error: Misfit) -> BadData:
        where = records.where(error.index)
        return misfit(where, field.name, field.type, error.value, declared=self.declared)

    def _made(self, rows: Sequence[dict[str, Any]], arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        if self.watch:
            self.unknown |= {p for r in rows for p in _more_in(r, self.arrow)}
        if rows:
            spelled = {k.lower(): k for k in rows[-1]}
            self._spelling = {f.name: spelled.get(f.name.lower(), f.name) for f in self.arrow}
        return pa.RecordBatch.from_arrays(list(arrays), schema=self.arrow)


def _more(found: Iterable[pa.Field], known: Iterable[pa.Field], above: Path = ()) -> Iterator[Path]:
    """Yields the fields that ``found`` has in addition to ``known``."""
    by_name = {f.name.lower(): f for f in known}
    for field in found:
        there = by_name.get(field.name.lower())
        if there is None:
            yield (*above, field.name)
        elif pa.types.is_struct(there.type) and pa.types.is_struct(field.type):
            yield from _more(field.type, there.type, (*above, field.name))


def _more_in(record: Mapping[str, Any], known: Iterable[pa.Field], above: Path = ()) -> Iterator[Path]:
    """Yields the same as ``_more``, for one record."""
    by_name = {f.name.lower(): f for f in known}
    for name, value in record.items():
        there = by_name.get(name.lower())
        if there is None:
            yield (*above, name)
        elif pa.types.is_struct(there.type) and isinstance(value, dict):
            yield from _more_in(value, there.type, (*above, name))


def _narrow(column: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Returns the column without fields of structs that the type does not have."""
    t = pa.types
    if column.type == dtype or not t.is_nested(dtype):
        return column
    if t.is_list(dtype) and t.is_list(column.type):
        inner = _narrow(column.values, dtype.value_type)
        return pa.ListArray.from_arrays(column.offsets, inner, mask=column.is_null())
    if not t.is_struct(dtype) or not t.is_struct(column.type):
        return column
    fields = [_narrow(pc.struct_field(column, [f.name]), f.type) for f in dtype]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(
        fields, fields=[f.with_type(a.type) for f, a in zip(dtype, fields, strict=True)], mask=mask
    )


def _is_time(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_date(dtype) or pa.types.is_timestamp(dtype))


def _is_native(dtype: pa.DataType) -> bool:
    """Returns whether Arrow's JSON reader returns exactly the values of the type, or fails."""
    t = pa.types
    if t.is_struct(dtype):
        return dtype.num_fields > 0 and all(_is_native(f.type) for f in dtype)
    if t.is_list(dtype):
        return _is_native(dtype.value_type)
    return bool(
        t.is_boolean(dtype)
        or t.is_integer(dtype)
        or t.is_floating(dtype)
        or t.is_decimal128(dtype)
        or t.is_string(dtype)
    )


def _scales(dtype: pa.DataType) -> Iterator[int]:
    """Yields the scales of the decimals in a type."""
    if pa.types.is_decimal(dtype):
        yield dtype.scale
    for i in range(dtype.num_fields):
        yield from _scales(dtype.field(i).type)


def _exact(dtype: pa.DataType, *, wide: bool) -> pa.DataType:
    """Returns the type with as many digits as decimals can have, or twice as many."""
    t = pa.types
    if t.is_decimal(dtype):
        return pa.decimal256(2 * MAX_DIGITS, dtype.scale) if wide else pa.decimal128(MAX_DIGITS, dtype.scale)
    if t.is_list(dtype):
        return pa.list_(dtype.value_field.with_type(_exact(dtype.value_type, wide=wide)))
    if t.is_struct(dtype):
        return pa.struct([f.with_type(_exact(f.type, wide=wide)) for f in dtype])
    return dtype


def _may_wrap(block: bytes, digits: int) -> bool:
    """Returns whether a number may have more digits before the point, or an exponent: of these Arrow's reader makes
    others, silently, unless a decimal has twice as many digits.
    """
    text = np.frombuffer(block, np.uint8)
    run = text - np.uint8(ord("0")) < 10
    exponents = (text[1:] | 0x20) == ord("e")
    if (run[:-1] & exponents).any():
        return True
    length = 1
    while length <= digits and len(run):
        step = min(length, digits + 1 - length)
        run, length = run[step:] & run[:-step], length + step
    return bool(run.any())


def _has_tiny_number(block: bytes) -> bool:
    """Returns whether a number has an exponent below -99, of which Arrow's reader makes 0, or crashes."""
    if b"e-" not in block and b"E-" not in block:
        return False
    return bool(pc.match_substring_regex(pa.array([block], pa.binary()), _TINY)[0].as_py())
