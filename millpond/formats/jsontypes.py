"""The types of parsed JSON: what Spark's schema inference would say, for whole records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from millpond.formats.jsonvalues import Number
from millpond.formats.merge import WIDE, merge_types
from millpond.formats.text import MAX_DIGITS
from millpond.types import Column, Schema

_LARGEST = 1 << 63


def discover_records(records: Iterable[dict[str, Any]]) -> Schema:
    """The columns of records, in the order in which they first appear; names ignore case.

    What was NULL in all records is VOID.
    """
    found = pa.struct([])
    for record in records:
        found = merge_types(found, _type_of(record))
    return Schema(tuple(Column(f.name, f.type) for f in found))


def _type_of(value: Any) -> pa.DataType:
    if value is None:
        return pa.null()
    if isinstance(value, Number):
        return _number(value)
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, list):
        inner = pa.null()
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
        return pa.float64()
    if len(digits) > MAX_DIGITS:
        return pa.float64()
    return pa.int64() if -_LARGEST <= int(text) < _LARGEST else WIDE
