"""Conditions on the rows of one table, simple enough that every backend means the same by them.

They are what a backend may look for by itself: a row for which one does not hold, or is NULL, cannot matter. What a
statement asks beyond them is evaluated on the rows that the backend gives.
"""

from __future__ import annotations

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
