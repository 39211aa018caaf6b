"""The columns that an expression can see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp


@dataclass(frozen=True, slots=True)
class Visible:
    """One column of what FROM gives: its name, that of its input, and what stands for it in the resolved query."""

    alias: str
    name: str
    value: exp.Expr
    hidden: bool = False
    """It is not in ``*``."""
    qualified: bool = False
    """It can only be named with its input: the side of USING that the bare name does not mean."""

    @property
    def dtype(self) -> pa.DataType | None:
        return self.value.meta.get("dtype")


@dataclass(slots=True)
class Scope:
    """What the inputs of one SELECT give, and the SELECT around it."""

    outer: Scope | None = None
    columns: list[Visible] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    """The aliases of the inputs, in order."""
    unknown: bool = False
    """An input is not known, nor are its columns."""
    ctes: dict[str, Cte] = field(default_factory=dict)
    select: bool = False
    """It is that of a SELECT, not of what only stands around one."""
    lateral: bool = False
    """It is around a query behind LATERAL, which may ask for ``x.*`` of its inputs."""

    def has(self, alias: str) -> bool:
        """Whether an input has this alias."""
        return alias.lower() in (i.lower() for i in self.inputs)

    def of(self, alias: str) -> list[Visible]:
        """The columns of an input, as ``alias.*`` gives them: those that only the alias leads to come first."""
        mine = [c for c in self.columns if c.alias.lower() == alias.lower()]
        return [c for c in mine if c.qualified] + [c for c in mine if not c.qualified]

    def matches(self, name: str, alias: str | None = None) -> list[Visible]:
        """The columns that a name, bare or after an alias, can mean."""
        named = [c for c in self.columns if c.name.lower() == name.lower()]
        if alias is None:
            return [c for c in named if not c.qualified]
        return [c for c in named if c.alias.lower() == alias.lower()]

    def shown(self) -> list[Visible]:
        """The columns of ``*``."""
        return [c for c in self.columns if not c.hidden and not c.qualified]

    def tables(self) -> set[str]:
        """The inputs, by the names that they have in the resolved query."""
        return {c.table.lower() for v in self.columns for c in v.value.find_all(exp.Column)}

    def cte(self, name: str) -> Cte | None:
        return next((s.ctes[name.lower()] for s in self.around() if name.lower() in s.ctes), None)

    def around(self) -> Iterator[Scope]:
        """This scope and the ones outside it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def names(self) -> list[str]:
        return [c.name for s in self.around() for c in s.columns]


@dataclass(frozen=True, slots=True)
class Cte:
    """A query of WITH: the name that it has in the resolved query, and its columns."""

    name: str
    columns: list[tuple[str, pa.DataType | None]]
