"""What a name means: streams, tables and views share one namespace."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from millpond.errors import Place, UnknownName, did_you_mean
from millpond.sql.statements import Query, Watermark
from millpond.types import Schema

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

RelationKind = Literal["stream", "table", "view", "source", "sink"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a batch: the most rows, and seconds that it should take at the most."""

    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Relation:
    """Something that can stand in FROM.

    ``uri`` is set for a source (and for a stream with a connector), ``query`` for a view.
    ``running`` says that rows keep coming: a query over it runs. ``rows_of`` names the table whose rows it has,
    where a statement that changes a table reads it with its row numbers. ``guessed`` says that the types of a
    source were found by looking at its text, ``declared`` what a statement wants them to be. ``strict`` says that
    INSERT refuses a key that is there. ``live`` is a table that follows a query over tables: only that changes it.
    ``place`` is the database that a table lives in, None for the app's journal. ``null_keys`` says that NULL is a value
    of its key.
    ``watermark`` says how far the times of a stream have come, ``limits`` how much of it is taken at once.
    ``spoils`` says that a source may have records that cannot be read, which are put aside, ``follows`` that a table
    over a source follows it, ``captured`` that it then does so by the changes that a database logs.
    """

    name: str
    kind: RelationKind
    schema: Schema
    running: bool = False
    uri: str | None = None
    query: Query | None = None
    rows_of: str | None = None
    guessed: bool = False
    declared: Schema | None = None
    strict: bool = False
    live: bool = False
    place: str | None = None
    null_keys: bool = False
    watermark: Watermark | None = None
    limits: Limits | None = None
    spoils: bool = False
    follows: bool = False
    captured: bool = False

    @property
    def is_open(self) -> bool:
        """Whether nobody knows its columns, since its declaration is wrong: what names them is not checked."""
        return not self.schema.columns


@dataclass(frozen=True, slots=True)
class Index:
    """An index that was declared: CREATE INDEX. Its name is among indexes only."""

    name: str
    table: str
    columns: tuple[str, ...]


class Catalog:
    """The relations of an app by name, ignoring case. A copy is cheap; ``check`` works on one."""

    def __init__(self, relations: dict[str, Relation] | None = None, indexes: dict[str, Index] | None = None):
        self._relations = dict(relations or {})
        self._indexes = dict(indexes or {})
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change; a copy has none."""
        self.making: str | None = None
        """The name, in lower case, of what the statement that is being checked makes: nobody can mean that yet."""

    def copy(self) -> Catalog:
        return Catalog(self._relations, self._indexes)

    def __iter__(self) -> Iterator[Relation]:
        return iter(list(self._relations.values()))

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._relations

    def find(self, name: str) -> Relation | None:
        return self._relations.get(name.lower())

    def add(self, relation: Relation) -> None:
        self._relations[relation.name.lower()] = relation
        self.on_change()

    def remove(self, name: str) -> None:
        self._relations.pop(name.lower(), None)
        for index in self.indexes(name):
            del self._indexes[index.name.lower()]
        self.on_change()

    def index(self, name: str) -> Index | None:
        return self._indexes.get(name.lower())

    def indexes(self, table: str | None = None) -> list[Index]:
        """All indexes, or those of a table."""
        return [i for i in self._indexes.values() if table is None or i.table.lower() == table.lower()]

    def add_index(self, index: Index) -> None:
        self._indexes[index.name.lower()] = index
        self.on_change()

    def remove_index(self, name: str) -> None:
        self._indexes.pop(name.lower(), None)
        self.on_change()

    def names(self, *kinds: RelationKind) -> list[str]:
        return [r.name for r in self if not kinds or r.kind in kinds]

    def unknown(
        self,
        name: str,
        what: str = "stream or table",
        place: Place | None = None,
        *,
        source: bool = False,
    ) -> UnknownName:
        """The error for a name that is not here, or is something else. What stands in FROM, a ``source``, may be meant
        for something outside even if there is a name like it."""
        there = self.find(name)
        if there is not None and name.lower() != self.making:
            return UnknownName(f'"{there.name}" is a {there.kind}, not a {what}', place=place)
        otherwise = "declare it first with CREATE STREAM or CREATE TABLE"
        if what == "stream or table" and _TOPIC.fullmatch(name):
            otherwise += f", or read a Kafka topic with kafka_topic('{name}')"
        near = did_you_mean(name, [n for n in self.names() if n.lower() != self.making])
        hint = otherwise if near is None else f"{near} If not, {otherwise}" if source else near
        return UnknownName(f'{what} "{name}" is not known', hint=hint, place=place)


Describe = Callable[[str, str], Relation]
"""(uri, alias) → the relation that it names. Raises an Error when it cannot be read."""
