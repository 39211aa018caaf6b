"""Writes conditions as filters of MongoDB. A filter matches every row that the condition matches, and may match more:
the rest is evaluated on the rows that it finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millpond.connectors.mongodb.values import encoded, is_text_there
from millpond.predicates import All, Any_, Compare, IsNull, OneOf, Predicate
from millpond.types import Column

Filter = dict[str, Any]
FieldOf = Callable[[str], tuple[Column, str]]
"""The column of a name, and its field."""

_WORDS = {"<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte"}
_NAN = float("nan")


def written(predicate: Predicate, field_of: FieldOf) -> Filter | None:
    """Returns the filter of the part of a condition that has one."""
    match predicate:
        case Compare(name, operator, value):
            return _compared(*field_of(name), operator, value)
        case OneOf(name, values, negated):
            return _one_of(*field_of(name), values, negated)
        case IsNull(name, is_null):
            column, field = field_of(name)
            if pa.types.is_nested(column.type):
                return None  # an array with NULL in it would be NULL
            return {field: None} if is_null else {field: {"$ne": None}}
        case All(parts):
            found = [f for p in parts if (f := written(p, field_of)) is not None]
            return {"$and": found} if found else None
        case Any_(parts):
            every = [written(p, field_of) for p in parts]
            return {"$or": every} if None not in every else None


def _compared(column: Column, field: str, operator: str, value: Any) -> Filter | None:
    dtype = column.type
    t = pa.types
    if t.is_nested(dtype):
        return None
    (cell,) = encoded(pa.array([value], dtype), dtype)
    if operator == "=":
        return {field: cell}
    if operator == "!=":
        # A time is equal only if its microseconds are, which this field does not have.
        return {field: {"$ne": None}} if t.is_timestamp(dtype) else {field: {"$nin": [cell, None]}}
    if t.is_binary(dtype) or is_text_there(dtype):
        return {field: {"$ne": None}}  # ordered otherwise there
    if t.is_string(dtype) and not _ordered_alike(value):
        return {field: {"$ne": None}}
    if t.is_floating(dtype):
        if math.isnan(value):
            return {field: {"$ne": None}}
        if operator in (">", ">="):  # NaN is greater than all numbers
            return {"$or": [{field: {_WORDS[operator]: cell}}, {field: _NAN}]}
    if t.is_timestamp(dtype):
        operator = operator[0] + "="
    return {field: {_WORDS[operator]: cell}}


def _one_of(column: Column, field: str, values: tuple[Any, ...], negated: bool) -> Filter | None:
    dtype = column.type
    if pa.types.is_nested(dtype):
        return None
    if negated and pa.types.is_timestamp(dtype):
        return {field: {"$ne": None}}
    cells = encoded(pa.array(list(values), dtype), dtype)
    return {field: {"$nin": [*cells, None]}} if negated else {field: {"$in": cells}}


def _ordered_alike(text: str) -> bool:
    """Returns whether texts are before and after this one in the order of bytes and in that of UTF-16 alike, which some
    servers use.
    """
    return all(c < "\ud800" for c in text)
