"""Defines the columns that an expression can see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp


@dataclass(frozen=True, slots=True)
class Visible:
    """Represents one column that FROM returns: its name, that of its input, and its expression in the resolved
    query.
    """

    alias: str
    name: str
    value: exp.Expr
    hidden: bool = False
    """Whether it is not in ``*``."""
    qualified: bool = False
    """Whether it must be qualified with its input: the side of USING that the bare name does not mean."""

    @property
    def dtype(self) -> pa.DataType | None:
        return self.value.meta.get("dtype")


@dataclass(slots=True)
class Scope:
    """Represents what the inputs of one SELECT return, and the outer SELECT."""

    outer: Scope | None = None
    columns: list[Visible] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    """The aliases of the inputs, in order."""
    unknown: bool = False
    """Whether an input, and so its columns, is unknown."""
    ctes: dict[str, Cte] = field(default_factory=dict)
    select: bool = False
    """Whether it belongs to a SELECT, and not only to something around one."""
    lateral: bool = False
    """Whether it surrounds a query after LATERAL, which may read ``x.*`` of its inputs."""

    def has(self, alias: str) -> bool:
        """Returns whether an input has this alias."""
        return alias.lower() in (i.lower() for i in self.inputs)

    def of(self, alias: str) -> list[Visible]:
        """Returns the columns of an input, as in ``alias.*``: those that require the alias are first."""
        mine = [c for c in self.columns if c.alias.lower() == alias.lower()]
        return [c for c in mine if c.qualified] + [c for c in mine if not c.qualified]

    def matches(self, name: str, alias: str | None = None) -> list[Visible]:
        """Returns the columns that a name, bare or after an alias, can mean."""
        named = [c for c in self.columns if c.name.lower() == name.lower()]
        if alias is None:
            return [c for c in named if not c.qualified]
        return [c for c in named if c.alias.lower() == alias.lower()]

    def shown(self) -> list[Visible]:
        """Returns the columns of ``*``."""
        return [c for c in self.columns if not c.hidden and not c.qualified]

    def tables(self) -> set[str]:
        """Returns the inputs, by their names in the resolved query."""
        return {c.table.lower() for v in self.columns for c in v.value.find_all(exp.Column)}

    def cte(self, name: str) -> Cte | None:
        return next((s.ctes[name.lower()] for s in self.around() if name.lower() in s.ctes), None)

    def around(self) -> Iterator[Scope]:
        """Yields this scope and the outer ones."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def names(self) -> list[str]:
        return [c.name for s in self.around() for c in s.columns]


@dataclass(frozen=True, slots=True)
class Cte:
    """Represents a query of WITH: its name in the resolved query, and its columns."""

    name: str
    columns: list[tuple[str, pa.DataType | None]]
