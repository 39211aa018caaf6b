"""Collects where a text names columns and tables, while its names are resolved. Offsets are those of the expanded
script.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ColumnReference:
    """Represents the name of a column. ``table`` is the relation that has it, None for a query in FROM; ``owner`` is
    the input that the text can put before the name, empty if it need not.
    """

    start: int
    end: int
    table: str | None
    column: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class StarColumn:
    """Represents a column of ``*``. ``alias`` is its input in the text, ``output`` the name that it gets."""

    table: str | None
    column: str
    alias: str
    output: str


@dataclass(frozen=True, slots=True)
class StarReference:
    """Represents ``*`` or ``x.*`` in a SELECT list; ``at`` is the offset of the star itself."""

    start: int
    at: int
    columns: tuple[StarColumn, ...]
    replaces: bool


@dataclass(frozen=True, slots=True)
class TableReference:
    """Represents the name of a relation in FROM."""

    start: int
    end: int
    table: str
    aliased: bool


@dataclass(eq=False, repr=False)
class References:
    """Contains the names of one text by their offsets; names of relations and columns are in lower case."""

    columns: dict[int, ColumnReference] = field(default_factory=dict)
    stars: dict[int, StarReference] = field(default_factory=dict)
    tables: dict[int, TableReference] = field(default_factory=dict)

    def read(self, table: str, column: str) -> bool:
        """Returns whether the text reads a column of a table."""
        wanted = (table.lower(), column.lower())
        named = any((r.table, r.column) == wanted for r in self.columns.values())
        return named or any((c.table, c.column) == wanted for s in self.stars.values() for c in s.columns)
