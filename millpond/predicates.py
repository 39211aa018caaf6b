"""Conditions on the rows of one table, simple enough that every backend means the same by them.

They are what a backend may look for by itself: a row for which one does not hold, or is NULL, cannot matter. What a
statement asks beyond them is evaluated on the rows that the backend gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Operator = Literal["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Compare:
    """``column operator value``; the value is a Python value of the column's type, and not NULL."""

    column: str
    operator: Operator
    value: Any


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str
    is_null: bool = True


@dataclass(frozen=True, slots=True)
class All:
    """Every part holds."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Any_:
    """A part holds."""

    parts: tuple[Predicate, ...]


Predicate: TypeAlias = Compare | IsNull | All | Any_


@dataclass(frozen=True, slots=True)
class Need:
    """What a query needs of an input: some columns (None for all), rows that meet a condition, so many of them, any.
    A limit counts rows that meet the condition as the query means it: ``limit`` is for who finds just these."""

    columns: tuple[str, ...] | None
    predicate: Predicate | None
    limit: int | None


def all_of(*parts: Predicate | None) -> Predicate | None:
    """The parts that there are, together."""
    there = tuple(q for p in parts if p is not None for q in (p.parts if isinstance(p, All) else (p,)))
    return there[0] if len(there) == 1 else All(there) if there else None


def equal_values(predicate: Predicate, columns: Sequence[str]) -> list[tuple[Any, ...]] | None:
    """The values of the columns, of which every row for which the condition holds has one; None if it does not say. It
    does where it wants each column to equal a value, or a single one to equal one of several."""
    parts = predicate.parts if isinstance(predicate, All) else (predicate,)
    found: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, Compare) and part.operator == "=":
            found.setdefault(part.column.lower(), part.value)
        if isinstance(part, Any_) and len(columns) == 1:
            listed = [p for p in part.parts if isinstance(p, Compare) and p.operator == "="]
            if len(listed) == len(part.parts) and {p.column.lower() for p in listed} == {columns[0].lower()}:
                return [(p.value,) for p in listed]
    names = [name.lower() for name in columns]
    return [tuple(found[name] for name in names)] if names and all(n in found for n in names) else None


def text(predicate: Predicate) -> str:
    """The condition as a person reads it."""
    match predicate:
        case Compare(column, operator, value):
            return f"{column} {operator} {value!r}"
        case IsNull(column, is_null):
            return f"{column} IS {'' if is_null else 'NOT '}NULL"
        case All(parts):
            return " AND ".join(f"({text(p)})" if isinstance(p, Any_) else text(p) for p in parts)
        case Any_(parts):
            return " OR ".join(text(p) for p in parts)
