"""Evaluates paths into JSON text: functions over columns that DuckDB and Spark call.

A path is the JSON of its steps. Text that is not JSON, and paths that do not exist, return no value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from millpond.query.paths import Path
from millpond.sql.paths import JSON_NUMBER, NUMBERS, TEXTS

_LARGEST = Decimal(10) ** (JSON_NUMBER.precision - JSON_NUMBER.scale)
Column: TypeAlias = pa.Array | pa.ChunkedArray


def texts(column: Column, paths: Column) -> pa.Array:
    """Returns the values as text: texts as they are, all else as JSON writes it; null is NULL."""
    found = [[_text(v) for v in values] for values in _values(column, paths)]
    return pa.array(found, pa.list_(pa.string()))


def numbers(column: Column, paths: Column) -> pa.Array:
    """Returns those values that are numbers, as decimals. Raises ValueError for one that does not fit."""
    found = [[_number(v) for v in values if _is_number(v)] for values in _values(column, paths)]
    return pa.array(found, pa.list_(JSON_NUMBER))


FUNCTIONS: dict[str, tuple[Callable[[Column, Column], pa.Array], pa.DataType]] = {
    TEXTS: (texts, pa.string()),
    NUMBERS: (numbers, JSON_NUMBER),
}
"""By name, with the element type of each result."""


def _values(column: Column, paths: Column) -> Iterator[Iterator[Any]]:
    for text, steps in zip(column.to_pylist(), paths.to_pylist(), strict=True):
        yield iter(()) if text is None else _path(steps).values(text, None)


@lru_cache(maxsize=256)
def _path(steps: str) -> Path:
    return Path(steps, tuple((kind, what) for kind, what in json.loads(steps)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def _number(value: int | Decimal) -> Decimal:
    number = Decimal(value)
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and -exponent <= JSON_NUMBER.scale and abs(number) < _LARGEST:
        return number
    raise ValueError(f"the JSON number {value} does not fit DECIMAL(38,18)")


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    """Writes JSON like json.dumps; decimals keep their digits."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)
