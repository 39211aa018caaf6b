"""Defines conditions on the rows of one table: the one tree that index lookups, databases and the Table API share.

A row matches a condition if it is TRUE: FALSE and NULL are the same. A value is a Python value of the column's type, or
a ``Given`` for one that is known when the statement runs. ``sql/predicates.py`` reads the tree from SQL; further
conditions of a statement are evaluated on the found rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Operator = Literal["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Given:
    """Represents a value that is known when the statement runs: which one, its Python type (any if None), and its
    conversion to what the column's values are compared with. ``convert`` raises Unfit for a value that is compared
    differently.
    """

    at: int
    kind: type | None
    convert: Callable[[Any], Any] | None = None

    def value(self, values: Sequence[Any]) -> Any:
        """Returns its value among those of the run."""
        value = values[self.at]
        return value if self.convert is None else self.convert(value)


@dataclass(frozen=True, slots=True)
class Compare:
    """Represents ``column operator value``; the value is not NULL."""

    column: str
    operator: Operator
    value: Any


@dataclass(frozen=True, slots=True)
class OneOf:
    """Represents ``column IN (values)``, or NOT IN. None of them is NULL."""

    column: str
    values: tuple[Any, ...]
    negated: bool = False

    @property
    def spelled_out(self) -> Predicate:
        """Returns the same as comparisons, for systems without IN."""
        if self.negated:
            return All(tuple(Compare(self.column, "!=", v) for v in self.values))
        return Any_(tuple(Compare(self.column, "=", v) for v in self.values))


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str
    is_null: bool = True


@dataclass(frozen=True, slots=True)
class All:
    """Requires that every part is true."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Any_:
    """Requires that one part is true."""

    parts: tuple[Predicate, ...]


Predicate: TypeAlias = Compare | OneOf | IsNull | All | Any_


@dataclass(frozen=True, slots=True)
class Need:
    """Describes what a query needs of an input: some columns (None for all), rows that match a condition, a number of
    any of them. A limit counts rows that match the condition as the query means it: ``limit`` is for readers that find
    exactly these.
    """

    columns: tuple[str, ...] | None
    predicate: Predicate | None
    limit: int | None


def all_of(*parts: Predicate | None) -> Predicate | None:
    """Combines the given parts with AND."""
    there = tuple(q for p in parts if p is not None for q in (p.parts if isinstance(p, All) else (p,)))
    return there[0] if len(there) == 1 else All(there) if there else None


def any_of(*parts: Predicate) -> Predicate:
    """Combines the parts with OR; equalities of one column become one OneOf."""
    there = tuple(q for p in parts for q in (p.parts if isinstance(p, Any_) else (p,)))
    listed = [v for p in there for v in _values(p)]
    columns = {p.column for p in there if isinstance(p, Compare | OneOf)}
    if all(_values(p) for p in there) and len(columns) == 1:
        return OneOf(columns.pop(), tuple(listed))
    return there[0] if len(there) == 1 else Any_(there)


def _values(part: Predicate) -> tuple[Any, ...]:
    """Returns the values of which a column must equal one, if the part is nothing else."""
    match part:
        case Compare(_, "=", value):
            return (value,)
        case OneOf(_, values, False):
            return values
    return ()


def conjuncts(predicate: Predicate | None) -> tuple[Predicate, ...]:
    """Returns the parts that must all be true."""
    return () if predicate is None else predicate.parts if isinstance(predicate, All) else (predicate,)


def equalities(predicate: Predicate | None) -> dict[str, Any]:
    """Returns the columns that must equal a value, with the first such value."""
    found: dict[str, Any] = {}
    for part in conjuncts(predicate):
        if type(part) is Compare and part.operator == "=":
            found.setdefault(part.column, part.value)
    return found


def equal_values(predicate: Predicate, columns: Sequence[str]) -> list[tuple[Any, ...]] | None:
    """Returns the values of the columns, of which every matching row has one; None if that is not known. It is known if
    each column must equal a value, or a single one must equal one of several.
    """
    names = [name.lower() for name in columns]
    for part in conjuncts(predicate):
        if isinstance(part, OneOf) and not part.negated and [part.column.lower()] == names:
            return [(value,) for value in part.values]
    found = {column.lower(): value for column, value in equalities(predicate).items()}
    return [tuple(found[name] for name in names)] if names and all(n in found for n in names) else None


def leaves(predicate: Predicate | None) -> Iterator[Compare | OneOf | IsNull]:
    """Yields the conditions on single columns, in order."""
    match predicate:
        case All(parts) | Any_(parts):
            for part in parts:
                yield from leaves(part)
        case Compare() | OneOf() | IsNull():
            yield predicate


def givens_of(predicate: Predicate | None) -> list[Given]:
    """Returns the values that are known when the statement runs, in order."""
    found: list[Given] = []
    for leaf in leaves(predicate):
        values = (
            (leaf.value,) if isinstance(leaf, Compare) else leaf.values if isinstance(leaf, OneOf) else ()
        )
        found += [v for v in values if isinstance(v, Given)]
    return found


def columns_of(predicate: Predicate | None) -> list[str]:
    """Returns the columns that the condition reads, each once."""
    return list(dict.fromkeys(leaf.column for leaf in leaves(predicate)))


def text(predicate: Predicate) -> str:
    """Returns the condition as text for people."""
    match predicate:
        case Compare(column, operator, value):
            return f"{column} {operator} {value!r}"
        case IsNull(column, is_null):
            return f"{column} IS {'' if is_null else 'NOT '}NULL"
        case OneOf():
            return text(predicate.spelled_out)
        case All(parts):
            return " AND ".join(f"({text(p)})" if _is_or(p) else text(p) for p in parts)
        case Any_(parts):
            return " OR ".join(text(p) for p in parts)


def _is_or(predicate: Predicate) -> bool:
    return isinstance(predicate, Any_) or (isinstance(predicate, OneOf) and not predicate.negated)
