"""Infers the types of parsed JSON, for whole records, as Spark's schema inference does."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import pyarrow as pa

from millpond.formats.decimals import MAX_DIGITS, is_number
from millpond.formats.jsonvalues import Number
from millpond.formats.merge import WIDE, merge_types
from millpond.types import NUMBER, Column, Schema

_LARGEST = 1 << 63
_SHORT = 19
"""Fewer digits than this always fit into BIGINT."""
_VOID, _STRING, _BOOLEAN = pa.null(), pa.string(), pa.bool_()
_BIGINT, _DOUBLE = pa.int64(), pa.float64()


def discover_records(records: Iterable[dict[str, Any]]) -> Schema:
    """Returns the columns of records, in the order in which they first appear; names ignore case.

    What was NULL in all records is VOID.
    """
    rows = list(records)
    found: dict[str, list[pa.DataType]] = {}
    for row in rows:
        for name, value in row.items():
            dtype, known = _type_of(value), found.get(name)
            if known is None:
                found[name] = [dtype]
            elif known[-1] is not dtype and dtype not in known:
                known.append(dtype)
    if len({name.lower() for name in found}) < len(found):  # spelled in several ways, perhaps in one record
        merged = reduce(merge_types, map(_type_of, rows), pa.struct([]))
        return Schema(tuple(Column(f.name, f.type) for f in merged))
    return Schema(tuple(Column(name, reduce(merge_types, types)) for name, types in found.items()))


def _type_of(value: Any) -> pa.DataType:
    if value is None:
        return _VOID
    if isinstance(value, Number):
        return _number(value)
    if isinstance(value, str):
        return _STRING
    if isinstance(value, bool):
        return _BOOLEAN
    if isinstance(value, list):
        inner = _VOID
        for item in value:
            inner = merge_types(inner, _type_of(item))
        return pa.list_(pa.field("element", inner))
    fields: dict[str, pa.Field] = {}
    for name, item in value.items():
        fields.setdefault(name.lower(), pa.field(name, _type_of(item)))
    return pa.struct(list(fields.values()))


def _number(text: str) -> pa.DataType:
    digits = text.lstrip("-")
    if not digits.isdigit():
        return NUMBER if is_number(text) else _DOUBLE
    if len(digits) < _SHORT:
        return _BIGINT
    if len(digits) > MAX_DIGITS:
        return _DOUBLE
    return _BIGINT if -_LARGEST <= int(text) < _LARGEST else WIDE
