"""Tells from the footer of a Parquet file whether Spark's own reader returns the same values as ours.

Only what is known to be the same is accepted: everything else is left to our reader. Both read the same values of plain
types, of dates and times in milliseconds and microseconds, of INT96, and of lists, maps and structs in their standard
form. They differ, for example, in nanoseconds, in types that only the schema of Arrow tells, in nested columns that
have other names, and in dates and times that an early Spark has written.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, normal

_VERSION = b"org.apache.spark.version"
_INT96_SINCE = b"3.1.0"
"""Spark takes INT96 of an earlier version for times of the other calendar. It compares versions as texts."""
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_EARLIER = "its dates and times are those of an earlier Spark"
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD")
_ENCODINGS = frozenset(
    ("PLAIN", "PLAIN_DICTIONARY", "RLE", "RLE_DICTIONARY", "BIT_PACKED")
    + ("DELTA_BINARY_PACKED", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")
)
_PLAIN = {
    ("BOOLEAN", "NONE"): pa.bool_(),
    ("INT32", "NONE"): pa.int32(),
    ("INT64", "NONE"): pa.int64(),
    ("INT96", "NONE"): TIMESTAMP,
    ("FLOAT", "NONE"): pa.float32(),
    ("DOUBLE", "NONE"): pa.float64(),
    ("BYTE_ARRAY", "NONE"): pa.binary(),
    ("BYTE_ARRAY", "STRING"): pa.string(),
    ("INT32", "DATE"): pa.date32(),
}
_INTEGERS = {
    ("INT32", 8): pa.int8(),
    ("INT32", 16): pa.int16(),
    ("INT32", 32): pa.int32(),
    ("INT64", 64): pa.int64(),
}
_DIGITS = {"INT32": 9, "INT64": 18, "FIXED_LEN_BYTE_ARRAY": 38, "BYTE_ARRAY": 38}
_UNITS = ("milliseconds", "microseconds")


class Differs(Exception):
    """Says why Spark's own reader may return other values than ours."""


def check_columns(file: Any, wanted: pa.Schema, groups: Sequence[int]) -> None:
    """Raises Differs unless Spark reads these columns of row groups of a file as we do. One that the file does not have
    is NULL.
    """
    metadata, fields = file.metadata, list(file.schema_arrow)
    written = metadata.metadata or {}
    _check_calendar(written)
    known = [f.name.lower() for f in fields]
    columns = [metadata.schema.column(i) for i in range(len(metadata.schema))]
    types = {f.name.lower(): f.type for f in wanted}
    at, read = 0, list[int]()
    for field in fields:
        leaves = sum(1 for _ in _leaves(field.type))
        name = field.name.lower()
        if name in types:
            if known.count(name) > 1:
                raise Differs(f'several columns are called "{name}"')
            own = deque(columns[at : at + leaves])
            if (
                any(c.physical_type == "INT96" for c in own)
                and written.get(_VERSION, _INT96_SINCE) < _INT96_SINCE
            ):
                raise Differs(_EARLIER)
            if not _is_same(field.name, field.type, types[name], own) or own:
                raise Differs(
                    f'column "{field.name}" is {_type_in_words(field.type, columns[at : at + leaves])}'
                )
            read.extend(range(at, at + leaves))
        at += leaves
    if at != len(columns):
        raise Differs("its columns are nested in another form")
    _check_pages(metadata, groups, read)


def starts_of(file: Any) -> list[int]:
    """Returns the byte at which each row group begins. Raises Differs if they are not in order."""
    found = []
    for group in range(file.metadata.num_row_groups):
        first = file.metadata.row_group(group).column(0)
        begins = [first.data_page_offset]
        if first.has_dictionary_page and first.dictionary_page_offset:
            begins.append(first.dictionary_page_offset)
        found.append(min(begins))
    if any(a >= b for a, b in itertools.pairwise(found)):
        raise Differs("its row groups are not in order")
    return found


def _check_calendar(written: dict[bytes, bytes]) -> None:
    version = written.get(_VERSION, b"3").split(b".")[0]
    if not version.isdigit() or int(version) < 3 or any(key in written for key in _OTHER_CALENDAR):
        raise Differs(_EARLIER)


def _check_pages(metadata: Any, groups: Sequence[int], columns: Sequence[int]) -> None:
    """Raises Differs if columns of row groups are compressed or encoded in a way that Spark may not know."""
    for column in (group.column(i) for group in map(metadata.row_group, groups) for i in columns):
        if column.compression not in _CODECS:
            raise Differs(f"it is compressed by {column.compression}")
        if not _ENCODINGS.issuperset(column.encodings):
            raise Differs(f"it is encoded as {', '.join(column.encodings)}")


def _leaves(dtype: pa.DataType) -> Iterator[pa.DataType]:
    """Yields the types of the columns that Parquet stores a type in."""
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    if pa.types.is_nested(dtype):
        for i in range(dtype.num_fields):
            yield from _leaves(dtype.field(i).type)
    else:
        yield dtype


def _is_same(path: str, given: pa.DataType, wanted: pa.DataType, columns: deque[Any]) -> bool:
    """Returns whether Spark reads a field as ``wanted``, and so do we; takes its columns."""
    t = pa.types
    if t.is_struct(given):
        if not t.is_struct(wanted) or [f.name for f in given] != [f.name for f in wanted]:
            return False
        lowered = {f.name.lower() for f in wanted}
        parts = [(f"{path}.{f.name}", f.type, w.type) for f, w in zip(given, wanted, strict=True)]
        return len(lowered) == len(parts) > 0 and all(_is_same(*part, columns) for part in parts)
    if t.is_list(given) or t.is_large_list(given):
        return t.is_list(wanted) and _is_same_list(path, given.value_type, wanted.value_type, columns)
    if t.is_map(given):
        return (
            t.is_map(wanted)
            and _is_same(f"{path}.key_value.key", given.key_type, wanted.key_type, columns)
            and _is_same(f"{path}.key_value.value", given.item_type, wanted.item_type, columns)
        )
    column = columns.popleft() if columns else None
    if column is None or column.path != path or _read_as(column) != wanted:
        return False
    if column.physical_type == "INT96":
        return "." not in path
    try:
        return bool(normal(given) == wanted)
    except TypeError:  # a type that only the schema of Arrow tells
        return False


def _is_same_list(path: str, given: pa.DataType, wanted: pa.DataType, columns: deque[Any]) -> bool:
    """Returns whether the elements of a list are the same. Spark takes a struct with one field for the list itself, if
    both have the same name.
    """
    first = columns[0].path if columns else ""
    for name in ("element", "item"):
        below = f"{path}.list.{name}"
        if first == below or first.startswith(f"{below}."):
            alone = pa.types.is_struct(given) and given.num_fields == 1 and given.field(0).name == name
            return not alone and _is_same(below, given, wanted, columns)
    return False


def _read_as(column: Any) -> pa.DataType | None:
    """Returns the type that Spark reads a column as without a loss; None for one that is not known to be read so."""
    physical, logical = column.physical_type, column.logical_type
    annotation = json.loads(logical.to_json())
    match logical.type:
        case "INT":
            return _INTEGERS.get((physical, annotation["bitWidth"])) if annotation["isSigned"] else None
        case "DECIMAL":
            digits, scale = annotation["precision"], annotation["scale"]
            fits = 0 <= scale <= digits <= _DIGITS.get(physical, 0)
            return pa.decimal128(digits, scale) if fits else None
        case "TIMESTAMP":
            if (
                physical != "INT64"
                or annotation["timeUnit"] not in _UNITS
                or annotation["is_from_converted_type"]
            ):
                return None
            return TIMESTAMP if annotation["isAdjustedToUTC"] else TIMESTAMP_NTZ
        case kind:
            return _PLAIN.get((physical, kind))


def _type_in_words(dtype: pa.DataType, columns: list[Any]) -> str:
    """Returns a type of a file in words."""
    if len(columns) == 1 and columns[0].physical_type == "INT96":
        return f"{dtype}, in Parquet INT96"
    return str(dtype)
