"""The columns that an expression can see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp


@dataclass(frozen=True, slots=True)
class Visible:
    """One column of an input of a query."""

    alias: str
    name: str
    dtype: pa.DataType | None
    hidden: bool = False


@dataclass(slots=True)
class Item:
    """One input in FROM: its alias and its columns."""

    alias: str
    columns: list[Visible]


@dataclass(slots=True)
class Scope:
    """The inputs of one SELECT, and the SELECT around it."""

    outer: Scope | None = None
    items: list[Item] = field(default_factory=list)
    merged: dict[str, exp.Expr] = field(default_factory=dict)
    """Columns of USING: the name in lower case → the expression that stands for both sides."""
    ctes: dict[str, list[tuple[str, pa.DataType | None]]] = field(default_factory=dict)

    def item(self, alias: str) -> Item | None:
        lowered = alias.lower()
        return next((i for i in self.items if i.alias.lower() == lowered), None)

    def matches(self, name: str) -> list[Visible]:
        lowered = name.lower()
        return [c for i in self.items for c in i.columns if c.name.lower() == lowered]

    def cte(self, name: str) -> list[tuple[str, pa.DataType | None]] | None:
        scope: Scope | None = self
        while scope is not None:
            if name.lower() in scope.ctes:
                return scope.ctes[name.lower()]
            scope = scope.outer
        return None

    def around(self) -> Iterator[Scope]:
        """This scope and the ones outside it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def names(self) -> list[str]:
        return [c.name for s in self.around() for i in s.items for c in i.columns]
