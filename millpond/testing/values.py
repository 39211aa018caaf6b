"""Formats values as text that distinguishes them.

    NULL  true  12  10.50  0.1  NaN  2024-03-01  2024-03-01T10:00:00Z (TIMESTAMP)  2024-03-01T10:00:00 (NTZ)
    Alice  "12"  ""  0x00ff  [1, 2]  {"a": 1, "b": "x"}

A string has no quotes unless it would read as something else. A decimal has all digits of its scale.
In an expected cell ``~1.5`` is any number within 1e-9 of it, relative or absolute.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy
import pyarrow as pa

from millpond.digits import written

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|NaN|-?Infinity")
_DATE_OR_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(T.*)?|\d{2}:\d{2}.*")
_NEAR = 1e-9


def show(value: Any, dtype: pa.DataType | None = None, *, inside: bool = False) -> str:
    """Returns the text of a value; ``inside`` an array or a struct strings always have quotes."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return written(value) if isinstance(value, Decimal) else str(value)
        case float():
            return _show_float(value, dtype)
        case str():
            return json.dumps(value, ensure_ascii=False) if inside or not _is_bare(value) else value
        case bytes():
            return "0x" + value.hex()
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat() + ("Z" if value.tzinfo else "")
        case dt.date():
            return value.isoformat()
        case Mapping():
            inner = _inner_types(dtype)
            parts = (
                f"{show(str(k), inside=True)}: {show(v, inner(k), inside=True)}" for k, v in value.items()
            )
            return "{" + ", ".join(parts) + "}"
        case list():
            element = dtype.value_type if dtype is not None and pa.types.is_list(dtype) else None
            return "[" + ", ".join(show(v, element, inside=True) for v in value) + "]"
    return str(value)


def _inner_types(dtype: pa.DataType | None) -> Any:
    if dtype is not None and pa.types.is_struct(dtype):
        return lambda name: dtype.field(name).type
    if dtype is not None and pa.types.is_map(dtype):
        return lambda name: dtype.item_type
    return lambda name: None


def _show_float(value: float, dtype: pa.DataType | None) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(numpy.float32(value)) if dtype == pa.float32() else repr(value)


def _is_bare(text: str) -> bool:
    return not (
        not text
        or text != text.strip()
        or text in ("NULL", "true", "false")
        or text[0] in '"[{~#-'
        or text.startswith("0x")
        or "|" in text
        or not text.isprintable()
        or _NUMBER.fullmatch(text)
        or _DATE_OR_TIME.fullmatch(text)
    )


def matches(expected: str, actual: str) -> bool:
    """Returns whether the text of a value is what a cell expects."""
    if expected.startswith("~"):
        try:
            return math.isclose(float(expected[1:]), float(actual), rel_tol=_NEAR, abs_tol=_NEAR)
        except ValueError:
            return False
    if expected.startswith('"'):
        return show(json.loads(expected)) == actual
    return expected == actual


def parse_cell(text: str, dtype: pa.DataType | None) -> Any:
    """Returns the Python value of a cell, for a column of a type."""
    if text == "NULL":
        return None
    if text.startswith('"'):
        return json.loads(text)
    if text[0] in "[{":
        return parse_json(text, dtype)
    if dtype is not None and pa.types.is_string(dtype):
        return text
    if dtype is not None and pa.types.is_binary(dtype) and text.startswith("0x"):
        return bytes.fromhex(text[2:])
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return _number(text, dtype)
    return text


def parse_json(text: str, dtype: pa.DataType | None) -> Any:
    """Returns a JSON value, with its numbers in the requested type."""
    return _typed(json.loads(text, parse_float=_Text, parse_constant=_Text), dtype)


class _Text(str):
    """Contains a number as it is written."""


def _typed(value: Any, dtype: pa.DataType | None) -> Any:
    if isinstance(value, _Text):
        return _number(value, dtype)
    if isinstance(value, dict):
        inner = _known(dtype)
        return {k: _typed(v, inner(k)) for k, v in value.items()}
    if isinstance(value, list):
        element = dtype.value_type if dtype is not None and pa.types.is_list(dtype) else None
        return [_typed(v, element) for v in value]
    return value


def _known(dtype: pa.DataType | None) -> Any:
    """Returns the types of fields, by name in any case; None for one that does not exist."""
    if dtype is not None and pa.types.is_struct(dtype):
        by_name = {f.name.lower(): f.type for f in dtype}
        return lambda name: by_name.get(name.lower())
    return _inner_types(dtype)


def _number(text: str, dtype: pa.DataType | None) -> Any:
    if dtype is not None and pa.types.is_decimal(dtype):
        return Decimal(text)
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    return float(text)
