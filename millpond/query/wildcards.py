"""Values and aggregates over paths, for all rows of a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from millpond.errors import SqlSyntaxError, TypeMismatch
from millpond.query.paths import Path, parse_path
from millpond.records.outgoing import to_rows, to_values
from millpond.types import Schema

_AGGREGATE = re.compile(
    r"\s*(?P<name>\w+)\s*\(\s*(?P<distinct>DISTINCT\s)?(?P<path>.*)\)\s*", re.IGNORECASE | re.S
)
_EXACT = Context(prec=76)


def columns_of(path: Path, schema: Schema) -> list[str]:
    """The columns that a path reads; none if it begins at one that is not there."""
    if path.column is None:
        return list(schema.names)
    column = schema.find(path.column)
    return [] if column is None else [column.name]


def path_values(path: Path, table: pa.Table) -> Iterator[Any]:
    """The values that the path finds in the rows, in their order. ``table`` has the columns that it reads."""
    if path.column is None:
        row_type = pa.struct(list(table.schema))
        for row in to_rows(table):
            yield from path.values(row, row_type)
    elif table.num_columns:
        rest = Path(path.text, path.steps[1:], path.holds)
        for value in to_values(table.column(0)):
            yield from rest.values(value, table.schema.field(0).type)


def parse_aggregate(text: str) -> tuple[str, bool, Path]:
    """The function in capitals, whether it is DISTINCT, and the path of ``SUM(positions.*.shares)``."""
    found = _AGGREGATE.fullmatch(text)
    name = found["name"].upper() if found else ""
    if found is None or name not in _FUNCTIONS:
        raise SqlSyntaxError(
            f'"{text}" is not an aggregate over a path',
            hint=f"one of {', '.join(_FUNCTIONS)}: SUM(orders[*].amount)",
        )
    return name, found["distinct"] is not None, parse_path(found["path"].strip())


def aggregate(name: str, distinct: bool, values: Iterator[Any]) -> Any:
    """The aggregate of the values, NULLs left out; of no values it is NULL, and COUNT is 0."""
    kept: Sequence[Any] = [v for v in values if v is not None]
    if distinct:
        kept = list({repr(v) if isinstance(v, (dict, list)) else v: v for v in kept}.values())
    return _FUNCTIONS[name](kept)


def _numbers(name: str, values: Sequence[Any]) -> Sequence[Any]:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise TypeMismatch(f"{name} takes numbers, and the path finds {type(value).__name__} {value!r}")
    if any(isinstance(v, float) for v in values):
        return [float(v) for v in values]
    return values


def _sum(values: Sequence[Any]) -> Any:
    numbers = _numbers("SUM", values)
    if not any(isinstance(v, Decimal) for v in numbers):
        return sum(numbers) if numbers else None
    total = Decimal(0)
    for value in numbers:
        total = _EXACT.add(total, Decimal(value))
    return total


def _average(values: Sequence[Any]) -> Any:
    """A DOUBLE, or of decimals a decimal with four digits more, as in Spark."""
    numbers = _numbers("AVG", values)
    if not numbers:
        return None
    total = _sum(numbers)
    if not isinstance(total, Decimal):
        return total / len(numbers)
    scale = max(-int(v.as_tuple().exponent) for v in numbers if isinstance(v, Decimal))
    return _EXACT.divide(total, Decimal(len(numbers))).quantize(
        Decimal(1).scaleb(-max(scale, 0) - 4), context=_EXACT
    )


def _extreme(name: str, pick: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    def function(values: Sequence[Any]) -> Any:
        if not values:
            return None
        try:
            return pick(values)
        except TypeError:
            kinds = ", ".join(sorted({type(v).__name__ for v in values}))
            raise TypeMismatch(f"{name} cannot compare the values that the path finds: {kinds}") from None

    return function


_FUNCTIONS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "COUNT": len,
    "SUM": _sum,
    "MIN": _extreme("MIN", min),
    "MAX": _extreme("MAX", max),
    "AVG": _average,
}
