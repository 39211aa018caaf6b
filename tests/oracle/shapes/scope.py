"""What an expression can name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.oracle.shapes.choices import Choices
from tests.oracle.shapes.tables import SCHEMAS

KINDS = {
    "INT": "num", "BIGINT": "num", "DOUBLE": "num", "DECIMAL(10,2)": "num", "DECIMAL(6,3)": "num",
    "STRING": "text", "BOOLEAN": "bool", "DATE": "date", "TIMESTAMP": "time", "TIMESTAMP_NTZ": "ntz",
    "ARRAY<INT>": "array", "MAP<STRING,INT>": "map", "STRUCT<p:INT,q:STRING>": "struct",
}  # fmt: skip
"""Kinds of values: what can be compared with what."""
PLAIN = ("num", "text", "bool", "date", "time", "ntz")
SORTABLE = (*PLAIN, "array", "struct")


@dataclass(frozen=True)
class Column:
    name: str
    kind: str


@dataclass
class Item:
    """An input: its alias, if it has one, and its columns."""

    alias: str
    columns: list[Column]


@dataclass
class Scope:
    """The inputs of a SELECT; ``merged`` are columns of USING and NATURAL, which have no alias."""

    items: list[Item] = field(default_factory=list)
    merged: list[Column] = field(default_factory=list)
    outer: Scope | None = None

    def names(self) -> list[str]:
        """Bare names, as often as they could be meant."""
        merged = {m.name for m in self.merged}
        found = [c.name for i in self.items for c in i.columns if c.name not in merged]
        return found + [m.name for m in self.merged]

    def references(self, kinds: Sequence[str], *, bare: bool = True) -> list[str]:
        """The ways to name a column of these kinds without doubt."""
        names = self.names()
        found = [m.name for m in self.merged if m.kind in kinds and names.count(m.name) == 1]
        for item in self.items:
            for column in item.columns:
                if column.kind not in kinds or _twice(item, column):
                    continue
                if item.alias:
                    found.append(f"{item.alias}.{column.name}")
                if bare and names.count(column.name) == 1:
                    found.append(column.name)
        return found

    def all_columns(self) -> list[str]:
        """Every column of every input once, for an order that leaves nothing open."""
        found = []
        for item in self.items:
            for column in item.columns:
                if column.kind in SORTABLE and not _twice(item, column):
                    found.append(f"{item.alias}.{column.name}" if item.alias else column.name)
        return found

    def is_plain(self) -> bool:
        """Whether all columns can be sorted by and be named."""
        return all(c.kind in SORTABLE and not _twice(i, c) and i.alias for i in self.items for c in i.columns)


def _twice(item: Item, column: Column) -> bool:
    return [c.name for c in item.columns].count(column.name) > 1


def table_columns(name: str) -> list[Column]:
    return [Column(c, KINDS[t]) for c, t in SCHEMAS[name].items()]


@dataclass
class Names:
    """Aliases and names that are new in a statement."""

    choices: Choices
    made: int = 0

    def fresh(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"


_OURS, _BETWEEN, _THEIRS = "\ue000", "\ue001", "\ue002"


def either(ours: str, theirs: str) -> str:
    """A text that reads differently for the oracle, which cannot say it in the same words."""
    return f"{_OURS}{ours}{_BETWEEN}{theirs}{_THEIRS}"


def reading(text: str, *, oracle: bool) -> str:
    """The text as one of the two reads it."""
    while _OURS in text:
        start = text.rindex(_OURS)
        middle = text.index(_BETWEEN, start)
        end = text.index(_THEIRS, middle)
        text = (
            text[:start] + (text[middle + 1 : end] if oracle else text[start + 1 : middle]) + text[end + 1 :]
        )
    return text
