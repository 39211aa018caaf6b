"""Encodes rows as JSON objects, a column at a time.

Numbers and decimals are written as they are, exactly; times in ISO 8601, in UTC with a Z; bytes in base 64; NaN and the
infinities, for which JSON has no number, as text. NULL is null.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.digits import all_written, duration_text, written
from millpond.types import whole

_CONTROL = r'[\x00-\x1f"\\]'


def to_json(rows: pa.Table) -> pa.Array:
    """Encodes one object for each row, as UTF-8 bytes."""
    if rows.num_columns == 0:
        return pa.array([b"{}"] * rows.num_rows, pa.binary())
    pieces: list[Any] = []
    lead = "{"
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        pieces += [
            f"{lead}{json.dumps(name, ensure_ascii=False)}:",
            pc.fill_null(_texts(whole(column)), "null"),
        ]
        lead = ","
    return pc.binary_join_element_wise(*pieces, "}", "").cast(pa.binary())


def written_alone(schema: pa.Schema) -> bool:
    """Returns whether ``row_to_json`` can write rows with such columns: those that are not nested."""
    return not any(pa.types.is_nested(f.type) for f in schema)


def row_to_json(row: Mapping[str, Any], schema: pa.Schema) -> bytes:
    """Encodes the object of one row, faster than column by column: the fields in the order of the schema's."""
    cells = zip(row.items(), schema.types, strict=True)
    texts = [
        f"{json.dumps(name, ensure_ascii=False)}:{_cell(value, dtype)}" for (name, value), dtype in cells
    ]
    return f"{{{','.join(texts)}}}".encode()


def _cell(value: Any, dtype: pa.DataType) -> str:
    """Encodes a value that is not nested. A float has as many digits as in a column."""
    if value is None or not pa.types.is_floating(dtype):
        return _value(value, dtype)
    return str(_floats(pa.array([value], dtype))[0])


def to_cells(column: pa.ChunkedArray) -> pa.Array:
    """Returns what cells of CSV contain: plain values as they are, of nested ones their JSON, of others the text that
    JSON has for them.
    """
    t, array = pa.types, whole(column)
    if t.is_nested(array.type) or t.is_decimal(array.type):
        return _texts(array)
    if t.is_timestamp(array.type) or t.is_binary(array.type) or t.is_duration(array.type):
        return pc.utf8_slice_codeunits(_texts(array), 1, -1)
    return array


def _texts(array: pa.Array) -> pa.Array:
    """Returns the JSON of each value; NULL stays NULL."""
    t, dtype = pa.types, array.type
    if t.is_null(dtype):
        return pa.nulls(len(array), pa.string())
    if t.is_dictionary(dtype):
        return _texts(array.dictionary_decode())
    if t.is_boolean(dtype) or t.is_integer(dtype):
        return array.cast(pa.string())
    if t.is_decimal(dtype):
        return all_written(array)
    if t.is_floating(dtype):
        return _floats(array)
    if t.is_string(dtype) or t.is_large_string(dtype):
        return _quoted(array.cast(pa.string()))
    if t.is_date(dtype):
        return _enclosed(array.cast(pa.string()))
    if t.is_timestamp(dtype):
        return _times(array)
    return pa.array([None if v is None else _value(v, dtype) for v in array.to_pylist()], pa.string())


def _floats(array: pa.Array) -> pa.Array:
    text = array.cast(pa.string())
    finite = pc.is_finite(array)
    if pc.all(finite).as_py() is False:
        names = pc.if_else(
            pc.is_nan(array), '"NaN"', pc.if_else(pc.greater(array, 0), '"Infinity"', '"-Infinity"')
        )
        text = pc.if_else(finite, text, names)
    return text


def _quoted(text: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(text, _CONTROL)).as_py():
        return pa.array(
            [None if v is None else json.dumps(v, ensure_ascii=False) for v in text.to_pylist()], pa.string()
        )
    return _enclosed(text)


def _enclosed(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _times(array: pa.Array) -> pa.Array:
    zone = "Z" if array.type.tz else ""
    plain = array.cast(pa.timestamp("us"))
    return _enclosed(pc.binary_join_element_wise(pc.strftime(plain, "%Y-%m-%dT%H:%M:%S"), zone, ""))


def _value(value: Any, dtype: pa.DataType) -> str:
    """Encodes a nested value."""
    t = pa.types
    if value is None:
        return "null"
    if t.is_struct(dtype):
        return _object((f.name, value[f.name], f.type) for f in dtype)
    if t.is_map(dtype):
        return _object((str(k), v, dtype.item_type) for k, v in value)
    if t.is_list(dtype) or t.is_large_list(dtype):
        return "[" + ",".join(_value(v, dtype.value_type) for v in value) + "]"
    if isinstance(value, Decimal):
        return written(value)
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode()
    elif isinstance(value, datetime):
        value = value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    elif isinstance(value, date):
        value = value.isoformat()
    elif isinstance(value, timedelta):
        value = duration_text(value)
    elif isinstance(value, float) and not isfinite(value):
        value = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return json.dumps(value, ensure_ascii=False)


def _object(fields: Iterable[tuple[str, Any, pa.DataType]]) -> str:
    return "{" + ",".join(f"{json.dumps(n, ensure_ascii=False)}:{_value(v, t)}" for n, v, t in fields) + "}"
