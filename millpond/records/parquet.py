"""Tells which rows Parquet files keep unchanged, for readers here and for Spark's own reader."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


def have_form(fields: Iterable[pa.Field]) -> bool:
    """Returns whether Parquet keeps all fields, and Spark reads them as the same: no two names may differ in case
    alone.
    """
    fields = list(fields)
    return len({f.name.lower() for f in fields}) == len(fields) and all(_has_form(f.type) for f in fields)


def _has_form(dtype: pa.DataType) -> bool:
    t = pa.types
    if t.is_struct(dtype):
        return dtype.num_fields > 0 and have_form(dtype)
    if t.is_map(dtype):
        return _has_form(dtype.key_type) and _has_form(dtype.item_type)
    if t.is_list(dtype):
        return _has_form(dtype.value_type)
    if t.is_timestamp(dtype):
        return bool(dtype.unit == "us")
    plain = (t.is_boolean, t.is_signed_integer, t.is_float32, t.is_float64, t.is_decimal128)
    return any(kind(dtype) for kind in (*plain, t.is_string, t.is_binary, t.is_date32))
