"""Lookups: rows of one table by equal values, perhaps under further tests, as columns or as aggregates.

A lookup is made once for a statement; the values come each time that it runs. It means what Spark SQL means by the
statement: where a value could be compared otherwise, ``convert`` raises Unfit and the statement goes the long way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Given:
    """A value that comes when the lookup runs: which one, of exactly which Python type, and what makes of it what
    the column's values are compared with."""

    at: int
    kind: type
    convert: Callable[[Any], Any] | None = None

    def value(self, values: Sequence[Any]) -> Any:
        """It, of those that came."""
        value = values[self.at]
        return value if self.convert is None else self.convert(value)


@dataclass(frozen=True, slots=True)
class Compare:
    """``=``, ``<>``, ``<``, ``<=``, ``>`` or ``>=``."""

    column: str
    operator: str
    value: Given


@dataclass(frozen=True, slots=True)
class OneOf:
    column: str
    values: tuple[Given, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Holds:
    """A BOOLEAN column."""

    column: str
    wanted: bool


@dataclass(frozen=True, slots=True)
class Every:
    parts: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Test, ...]


Test = Compare | OneOf | IsNull | Holds | Every | Either
"""A row passes if the test is TRUE: FALSE and NULL are one."""


@dataclass(frozen=True, slots=True)
class Output:
    """A column, or ``count``, ``sum``, ``min``, ``max`` or ``avg`` of one; COUNT(*) has none."""

    name: str
    column: str | None
    function: str | None = None


RowFunction = Callable[..., dict[str, Any]]
"""Of a record, and of the values that were taken out of the text. Raises Unfit where these need the long way."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The rows of a table with equal values in some columns or, where ``equal`` is empty, with one of the values of
    ``among``. ``outputs`` are all columns or all aggregates; ``schema`` is theirs. ``givens`` is how many values come;
    ``limit`` says how many rows are wanted at the most. ``row`` makes the outputs of a record, where they are none of
    those: ``outputs`` is then empty."""

    table: str
    equal: tuple[Compare, ...]
    test: Test | None
    outputs: tuple[Output, ...]
    schema: pa.Schema
    givens: int
    among: OneOf | None = None
    limit: Given | None = None
    row: RowFunction | None = None

    def columns(self, key: tuple[str, ...], declared: Iterable[Sequence[str]]) -> tuple[str, ...]:
        """The columns that an index finds the rows by: those of the key if all are there, else those of the declared
        index that has the most, else all, sorted."""
        if self.among is not None:
            return (self.among.column,)
        equal = {c.column.lower(): c.column for c in self.equal}
        if key and all(name.lower() in equal for name in key):
            return tuple(equal[name.lower()] for name in key)
        fitting = [tuple(names) for names in declared if all(name.lower() in equal for name in names)]
        return tuple(sorted(max(fitting, key=lambda names: (len(names), names), default=equal.values())))


class Answer(Protocol):
    """How a backend reads what a lookup found, ``source`` and ``found`` being its own."""

    schema: pa.Schema

    def rows(self, source: Any, found: Any) -> list[dict[str, Any]]: ...
    def values(self, source: Any, found: Any) -> list[Any]: ...
    def table(self, source: Any, found: Any) -> pa.Table: ...


Made = Callable[[Answer, Any, Any], Any]
"""Makes what a caller gets: a result that reads by the answer when it is asked."""
Run = Callable[..., Any]
"""Runs a lookup with its values; None where they need the long way. Raises Unfit likewise."""


def givens_of(test: Test | None) -> list[Given]:
    """The values that a test compares with, in order."""
    match test:
        case None | IsNull() | Holds():
            return []
        case Compare():
            return [test.value]
        case OneOf():
            return list(test.values)
        case Every() | Either():
            return [g for part in test.parts for g in givens_of(part)]


def columns_of(test: Test | None) -> list[str]:
    """The columns that a test reads, each once."""
    match test:
        case None:
            return []
        case Every() | Either():
            return list(dict.fromkeys(c for part in test.parts for c in columns_of(part)))
    return [test.column]
