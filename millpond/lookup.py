"""Defines lookups: rows of one table by equal values, optionally with a further condition, as columns or as aggregates.

A lookup is made once for a statement; it gets the values each time that it runs. It has the meaning of the statement in
Spark SQL: if a value could be compared differently, its ``Given`` raises Unfit and the statement takes the general
path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from millpond.predicates import Compare, Given, OneOf, Predicate, all_of, givens_of


@dataclass(frozen=True, slots=True)
class Output:
    """Describes a column, or ``count``, ``sum``, ``min``, ``max`` or ``avg`` of one; COUNT(*) has none."""

    name: str
    column: str | None
    function: str | None = None


RowFunction = Callable[..., dict[str, Any]]
"""Takes a record, and the literals of the text. Raises Unfit if these need the general path."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Describes the rows of a table with equal values in some columns or, if ``equal`` is empty, with one of the values
    of ``among``; the values of both are Givens. ``test`` must be true too. ``outputs`` are all columns or all
    aggregates; ``schema`` is theirs. ``givens`` is the number of values; ``limit`` the maximum number of rows. ``row``
    computes the outputs of a record, if they are neither: ``outputs`` is then empty.
    """

    table: str
    equal: tuple[Compare, ...]
    test: Predicate | None
    outputs: tuple[Output, ...]
    schema: pa.Schema
    givens: int
    among: OneOf | None = None
    limit: Given | None = None
    row: RowFunction | None = None

    def found_by(self) -> list[Given]:
        """Returns the values that it needs."""
        parts = [*self.equal, *(part for part in (self.among, self.test) if part is not None)]
        return [*givens_of(all_of(*parts)), *([] if self.limit is None else [self.limit])]

    def columns(self, key: tuple[str, ...], declared: Iterable[Sequence[str]]) -> tuple[str, ...]:
        """Returns the columns that an index finds the rows by: those of the key if all are there, else those of the
        declared index that has the most, else all, sorted.
        """
        if self.among is not None:
            return (self.among.column,)
        equal = {c.column.lower(): c.column for c in self.equal}
        if key and all(name.lower() in equal for name in key):
            return tuple(equal[name.lower()] for name in key)
        fitting = [tuple(names) for names in declared if all(name.lower() in equal for name in names)]
        return tuple(sorted(max(fitting, key=lambda names: (len(names), names), default=equal.values())))


class Answer(Protocol):
    """Reads what a lookup of a backend found; ``source`` and ``found`` are the backend's own."""

    schema: pa.Schema

    def rows(self, source: Any, found: Any) -> list[dict[str, Any]]: ...
    def values(self, source: Any, found: Any) -> list[Any]: ...
    def table(self, source: Any, found: Any) -> pa.Table: ...


Made = Callable[[Answer, Any, Any], Any]
"""Creates the result for the caller, which reads through the answer on demand."""
Run = Callable[..., Any]
"""Runs a lookup with its values; returns None, or raises Unfit, if they need the general path."""
