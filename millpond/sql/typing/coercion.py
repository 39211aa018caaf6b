"""Finds the common type of two types, in Spark's ANSI mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import pyarrow as pa

from millpond.sql.typing import decimals
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ

NULL = pa.null()
BOOLEAN = pa.bool_()
TINYINT = pa.int8()
INT = pa.int32()
BIGINT = pa.int64()
FLOAT = pa.float32()
DOUBLE = pa.float64()
STRING = pa.string()
BINARY = pa.binary()
DATE = pa.date32()
DURATION = pa.duration("us")

INTEGERS = (pa.int8(), pa.int16(), INT, BIGINT)
FLOATS = (FLOAT, DOUBLE)
_PRECEDENCE = (*INTEGERS, *FLOATS)
_DATETIMES = (DATE, TIMESTAMP_NTZ, TIMESTAMP)

is_decimal: Callable[[pa.DataType], bool] = pa.types.is_decimal128
is_list: Callable[[pa.DataType], bool] = pa.types.is_list
is_map: Callable[[pa.DataType], bool] = pa.types.is_map
is_struct: Callable[[pa.DataType], bool] = pa.types.is_struct


def list_of(dtype: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", dtype))


def is_integer(dtype: pa.DataType) -> bool:
    return dtype in INTEGERS


def is_numeric(dtype: pa.DataType) -> bool:
    return dtype in _PRECEDENCE or is_decimal(dtype)


def is_nested(dtype: pa.DataType) -> bool:
    return is_list(dtype) or is_map(dtype) or is_struct(dtype)


def meet(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Returns the widest common type of two, or None if they have none.

    Strings are cast: with an integer to BIGINT, with a fraction to DOUBLE, with any other simple type to it.
    """
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    if is_numeric(a) and is_numeric(b):
        return _numbers(a, b)
    if a in _DATETIMES and b in _DATETIMES:
        return _DATETIMES[max(_DATETIMES.index(a), _DATETIMES.index(b))]
    if STRING in (a, b):
        return _with_string(b if a == STRING else a)
    if is_list(a) and is_list(b):
        inner = meet(a.value_type, b.value_type)
        return None if inner is None else list_of(inner)
    if is_map(a) and is_map(b):
        key, item = meet(a.key_type, b.key_type), meet(a.item_type, b.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if is_struct(a) and is_struct(b):
        return _structs(a, b)
    return None


def _numbers(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if is_decimal(a) or is_decimal(b):
        if a in FLOATS or b in FLOATS:
            return DOUBLE
        left, right = (t if is_decimal(t) else decimals.of_integer(t) for t in (a, b))
        assert left is not None and right is not None
        return decimals.union(left, right)
    wider = _PRECEDENCE[max(_PRECEDENCE.index(a), _PRECEDENCE.index(b))]
    return DOUBLE if wider == FLOAT else wider


def _with_string(other: pa.DataType) -> pa.DataType | None:
    if is_integer(other):
        return BIGINT
    if other in FLOATS or is_decimal(other):
        return DOUBLE
    if other == DURATION or is_nested(other):
        return None
    return other


def _structs(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if len(a) != len(b):
        return None
    fields = []
    for left, right in zip(a, b, strict=True):
        inner = meet(left.type, right.type)
        if inner is None or left.name.lower() != right.name.lower():
            return None
        fields.append(pa.field(left.name, inner))
    return pa.struct(fields)


def widest(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Returns the common type of a UNION column, or of the branches of a CASE; None if there is none.

    Strings are combined last, so that the result does not depend on the order of the types.
    """
    ordered = [t for t in types if t != STRING] + [t for t in types if t == STRING]
    if not ordered:
        return None
    return reduce(lambda a, b: None if a is None else meet(a, b), ordered[1:], ordered[0])
