"""Answers of two evaluators, and whether they are the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

from millpond.errors import CheckFailed, Error, SqlError
from millpond.types import normal, type_name
from tests.oracle.foreign import FOREIGN


@dataclass(frozen=True)
class Answer:
    """Rows with their types, or why there are none."""

    types: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    error: str = ""
    when: Literal["", "check", "run"] = ""
    """When it was refused: before it ran, or while it did."""

    def __str__(self) -> str:
        if self.when:
            return f"refused ({self.when}): {self.error}"
        return f"{', '.join(self.types)}: {list(self.rows)}"


def answer_of(table: pa.Table) -> Answer:
    types = tuple(type_name(normal(f.type)) for f in table.schema)
    columns = [[_plain(v) for v in _values(c)] for c in table.columns]
    return Answer(types, tuple(zip(*columns, strict=True)) if columns else ((),) * table.num_rows)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values; those that Python does not have, far dates for one, as text."""
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):
        return column.cast(pa.string()).to_pylist()


def ours(ask: Callable[[], pa.Table]) -> Answer:
    """What a query gives here."""
    try:
        return answer_of(ask())
    except Error as error:
        found = error.errors[0] if isinstance(error, CheckFailed) and error.errors else error
        when: Literal["check", "run"] = "check" if isinstance(found, SqlError) else "run"
        return Answer(error=_said(found), when=when)


def _said(error: Error) -> str:
    """The words of an error, without the text of the statement that it points into."""
    return f"{error.message}; hint: {error.hint}" if error.hint else error.message


def difference(text: str, theirs: Answer, mine: Answer, *, ordered: bool) -> tuple[str, str, str] | None:
    """How an answer of ours differs from Spark's, by the words of the list of differences, and what each said."""
    found = _how(theirs, mine, ordered=ordered)
    return (found, str(theirs), str(mine)) if found else None


def _how(theirs: Answer, mine: Answer, *, ordered: bool) -> str:
    if mine.when and FOREIGN.search(mine.error):
        return "foreign"
    if theirs.when and mine.when:
        return ""
    if theirs.when:
        return "answered" if theirs.when == "check" else "quiet"
    if mine.when:
        return "refused" if mine.when == "check" else "raised"
    if theirs.types != mine.types:
        return "type"
    a, b = list(theirs.rows), list(mine.rows)
    if sorted(map(repr, a)) != sorted(map(repr, b)):
        return "value"
    return "value" if ordered and a != b else ""


def _plain(value: Any) -> Any:
    """A value whose text tells it from every other; maps have no order."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.12g}") + 0.0
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(v, tuple) and len(v) == 2 for v in value):
            return sorted(((_plain(k), _plain(v)) for k, v in value), key=repr)
        return [_plain(v) for v in value]
    if isinstance(value, Decimal):
        return str(value)
    return value
