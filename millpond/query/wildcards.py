"""Reads the values of paths for all rows of a table, and parses an aggregate over them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from millpond.errors import SqlSyntaxError
from millpond.query.paths import Path, parse_path
from millpond.records.outgoing import to_rows, to_values
from millpond.sql.functions import folds
from millpond.types import Schema

_AGGREGATE = re.compile(
    r"\s*(?P<name>\w+)\s*\(\s*(?P<distinct>DISTINCT\s)?(?P<path>.*)\)\s*", re.IGNORECASE | re.S
)


def columns_of(path: Path, schema: Schema) -> list[str]:
    """Returns the columns that a path reads; none if it begins at one that does not exist."""
    if path.column is None:
        return list(schema.names)
    column = schema.find(path.column)
    return [] if column is None else [column.name]


def path_values(path: Path, table: pa.Table) -> Iterator[Any]:
    """Yields the values that the path finds in the rows, in their order. ``table`` has the columns that it reads."""
    if path.column is None:
        row_type = pa.struct(list(table.schema))
        for row in to_rows(table):
            yield from path.values(row, row_type)
    elif table.num_columns:
        rest = Path(path.text, path.steps[1:], path.compared)
        for value in to_values(table.column(0)):
            yield from rest.values(value, table.schema.field(0).type)


def parse_aggregate(text: str) -> tuple[str, bool, Path]:
    """Returns the function in capitals, whether it is DISTINCT, and the path of ``SUM(positions.*.shares)``."""
    found = _AGGREGATE.fullmatch(text)
    name = found["name"].upper() if found else ""
    known = [function.upper() for function in folds().values()]
    if found is None or name not in known:
        raise SqlSyntaxError(
            f'"{text}" is not an aggregate over a path',
            hint=f"one of {', '.join(known)}: SUM(orders[*].amount)",
        )
    return name, found["distinct"] is not None, parse_path(found["path"].strip())
