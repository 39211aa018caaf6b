"""Implements in Python functions that rendered SQL calls: for texts that DuckDB reads or writes differently from Spark.

They are slow, about a microsecond per row, and called only for the rows that need them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from millpond.sql.render.duckdb.names import DAYS, LOWER, MICROS, TITLE, UPPER
from millpond.sql.times import days_of, micros_of

Column: TypeAlias = pa.Array | pa.ChunkedArray


@dataclass(frozen=True)
class Function:
    """Defines a function over columns; NULL in an argument returns NULL."""

    call: Callable[..., pa.Array]
    arguments: tuple[str, ...]
    returns: str


def _each(function: Callable[[str], Any], dtype: pa.DataType) -> Callable[[Column], pa.Array]:
    def over(column: Column) -> pa.Array:
        return pa.array([None if v is None else function(v) for v in column.to_pylist()], dtype)

    return over


def _title(text: str) -> str:
    """Implements INITCAP: the first letter of what is between blanks in title case, the others in lower case."""
    return " ".join(word[:1].title() + word[1:] for word in text.lower().split(" "))


def _micros(texts: Column, days: Column, zones: Column) -> pa.Array:
    rows = zip(texts.to_pylist(), days.to_pylist(), zones.to_pylist(), strict=True)
    found = [None if text is None else micros_of(text, today, zoned=zoned) for text, today, zoned in rows]
    return pa.array(found, pa.int64())


FUNCTIONS: dict[str, Function] = {
    UPPER: Function(_each(str.upper, pa.string()), ("VARCHAR",), "VARCHAR"),
    LOWER: Function(_each(str.lower, pa.string()), ("VARCHAR",), "VARCHAR"),
    TITLE: Function(_each(_title, pa.string()), ("VARCHAR",), "VARCHAR"),
    DAYS: Function(_each(days_of, pa.int32()), ("VARCHAR",), "INTEGER"),
    MICROS: Function(_micros, ("VARCHAR", "INTEGER", "BOOLEAN"), "BIGINT"),
}
"""By the names that rendered SQL uses."""
