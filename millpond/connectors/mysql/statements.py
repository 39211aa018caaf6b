"""Determines what a statement that a binary log contains as text does to one table."""

from __future__ import annotations

import re
from dataclasses import dataclass

EMPTIED, LOST = "emptied", "lost"
_COMMENT = re.compile(r"/\*(?!!|M!).*?\*/|(?:--\s|#)[^\n]*", re.DOTALL)
_VERSIONED = re.compile(r"/\*M?!\d*|\*/")
_NAME = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$]+)"
_NAMES = re.compile(rf"({_NAME})(?:\s*\.\s*({_NAME}))?")
_TRUNCATE = re.compile(r"TRUNCATE\s+(?:TABLE\s+)?", re.IGNORECASE)
_DROP = re.compile(r"DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?", re.IGNORECASE)
_DROP_ALL = re.compile(r"DROP\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+EXISTS\s+)?", re.IGNORECASE)
_RENAME = re.compile(r"RENAME\s+TABLES?\s+(?:IF\s+EXISTS\s+)?", re.IGNORECASE)
_ALTER = re.compile(r"ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\s+(?:IF\s+EXISTS\s+)?", re.IGNORECASE)
_REPLACE = re.compile(r"CREATE\s+OR\s+REPLACE\s+TABLE\s+", re.IGNORECASE)
_ALTER_NAME = re.compile(r"\bRENAME\s+(?!COLUMN\b|INDEX\b|KEY\b)", re.IGNORECASE)
_PARTITIONS = re.compile(
    r"\b(?:TRUNCATE|DROP|EXCHANGE|CONVERT)\s+PARTITION\b|\bTO\s+PARTITION\b", re.IGNORECASE
)
_SETTINGS = re.compile(r"SET\s+STATEMENT\s.*?\bFOR\s+", re.IGNORECASE | re.DOTALL)
_CHANGES = re.compile(r"(?:INSERT|UPDATE|DELETE|REPLACE|LOAD)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Effect:
    """Describes an effect. ``kind`` is EMPTIED, or LOST if the rows are not known after it; then ``why`` says what has
    happened.
    """

    kind: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class TableName:
    """Names a table as the log does."""

    schema: str
    table: str
    folds: bool = False
    """Whether case is ignored."""

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    def is_at(self, schema: str, table: str) -> bool:
        if self.folds:
            return (schema.lower(), table.lower()) == (self.schema.lower(), self.table.lower())
        return (schema, table) == (self.schema, self.table)

    def effect(self, database: str, text: str) -> Effect | None:
        """Returns what a statement, run in a database, does to the table; None if nothing."""
        text = _VERSIONED.sub(" ", _COMMENT.sub(" ", text)).strip()
        if (found := _SETTINGS.match(text)) is not None:
            text = text[found.end() :]
        if (found := _TRUNCATE.match(text)) is not None:
            return Effect(EMPTIED) if self._first(text, found.end(), database) else None
        if (found := _DROP.match(text)) is not None:
            names = self._all(text[found.end() :], database)
            return Effect(LOST, "was dropped") if any(self.is_at(*n) for n in names) else None
        if (found := _DROP_ALL.match(text)) is not None:
            name = _NAMES.match(text, found.end())
            gone = name is not None and self.is_at(_plain(name[1]), self.table)
            return Effect(LOST, "was dropped with its database") if gone else None
        if (found := _RENAME.match(text)) is not None:
            names = self._all(text[found.end() :], database)
            return (
                Effect(LOST, "was renamed, or another to its name")
                if any(self.is_at(*n) for n in names)
                else None
            )
        if (found := _ALTER.match(text)) is not None and self._first(text, found.end(), database):
            if _ALTER_NAME.search(text):
                return Effect(LOST, "was renamed")
            if _PARTITIONS.search(text):
                return Effect(LOST, "has lost or got the rows of a partition")
            return None
        if (found := _REPLACE.match(text)) is not None and self._first(text, found.end(), database):
            return Effect(LOST, "was replaced")
        if _CHANGES.match(text) is not None and self.table.lower() in text.lower():
            return Effect(LOST, "may have been changed by a statement that is logged as text, not as rows")
        return None

    def _first(self, text: str, at: int, database: str) -> bool:
        found = _NAMES.match(text, at)
        return found is not None and self.is_at(*_qualified(found, database))

    def _all(self, text: str, database: str) -> list[tuple[str, str]]:
        return [_qualified(m, database) for m in _NAMES.finditer(text)]


def _qualified(found: re.Match[str], database: str) -> tuple[str, str]:
    if found[2] is None:
        return database, _plain(found[1])
    return _plain(found[1]), _plain(found[2])


def _plain(name: str) -> str:
    if name[0] in '`"':
        return name[1:-1].replace(name[0] * 2, name[0])
    return name
