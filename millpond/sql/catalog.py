"""Resolves names: streams, tables and views share one namespace."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from millpond.errors import Place, UnknownName, did_you_mean
from millpond.options import Retention
from millpond.sql.references import References
from millpond.sql.statements import Query, Watermark
from millpond.sql.uris import TOPIC_CALL
from millpond.sql.versions import AsOf
from millpond.types import Schema

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

RelationKind = Literal["stream", "table", "view", "source", "sink"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits a batch: the maximum number of rows, and the seconds that it should take at most."""

    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Ttl:
    """Says how many seconds a row stays in a table: after the time in a column of it, or after its last change."""

    seconds: float
    column: str | None


@dataclass(frozen=True, slots=True)
class Relation:
    """Describes something that FROM can name.

    ``uri`` is set for a source (and for a stream with a connector), ``query`` for a view. ``running`` says that rows
    keep arriving: a query over it runs. ``rows_of`` names the table whose rows it has, where a statement that changes a
    table reads it with its row numbers. ``guessed`` says that the types of a source were inferred from its text,
    ``declared`` which types a statement wants. ``strict`` says that INSERT refuses an existing key. ``live`` marks a
    table that follows a query over tables: only that query changes it. ``stored_in`` is the database that stores the
    table, None for the app's journal. ``evicts`` says that rows leave it without a change. ``null_keys`` says that NULL
    is a valid key value. ``watermark`` says how far the times of a stream have come, ``limits`` how much of it is read
    at once, ``retention`` how much of it is kept, ``ttl`` how long the rows of a table are. ``rejects`` says that a
    source may have records that cannot be read, which become error records; ``follows`` that a table over a source
    follows it; ``captured`` that it does so by change capture; ``spreads`` that executors may read it. ``changing``
    says that it is the changes of the table of that name, which a statement with EMIT CHANGES reads. ``versioned`` says
    that a table keeps earlier versions, and ``at`` which of them FROM names. ``flushed_by`` says who writes its changes
    to its store, if that is done later, and ``divides`` that executors may write to it.
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
    stored_in: str | None = None
    evicts: bool = False
    null_keys: bool = False
    watermark: Watermark | None = None
    limits: Limits | None = None
    retention: Retention | None = None
    ttl: Ttl | None = None
    rejects: bool = False
    follows: bool = False
    captured: bool = False
    spreads: bool = False
    changing: bool = False
    versioned: bool = False
    at: AsOf | None = None
    flushed_by: str | None = None
    divides: bool = False
    text: str = field(default="", compare=False, repr=False)
    """The text of the statement that declares a view."""

    @property
    def is_open(self) -> bool:
        """Returns whether its declaration is wrong, so that its columns are unknown and not checked."""
        return not self.schema.columns


@dataclass(frozen=True, slots=True)
class Index:
    """Describes an index declared by CREATE INDEX. Indexes have a namespace of their own."""

    name: str
    table: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CatalogVersion:
    """Says what names mean at one point in time, ignoring case. It is immutable: a statement is checked, planned and
    run with the version that it took, whatever others declare and drop meanwhile.
    """

    relations: Mapping[str, Relation]
    declared: Mapping[str, Index]
    """Indexes by name in lower case."""

    def __iter__(self) -> Iterator[Relation]:
        return iter(self.relations.values())

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.relations

    def find(self, name: str) -> Relation | None:
        return self.relations.get(name.lower())

    def index(self, name: str) -> Index | None:
        return self.declared.get(name.lower())

    def indexes(self, table: str | None = None) -> list[Index]:
        """Returns all indexes, or those of a table."""
        return [i for i in self.declared.values() if table is None or i.table.lower() == table.lower()]

    def adding(self, relations: Iterable[Relation]) -> CatalogVersion:
        """Returns the version with these relations added, each replacing the one of its name."""
        added = {r.name.lower(): r for r in relations}
        return CatalogVersion(MappingProxyType({**self.relations, **added}), self.declared)

    def letting(self, name: str, relation: Relation) -> CatalogVersion:
        """Returns the version in which a name means a relation that has another name itself."""
        return CatalogVersion(MappingProxyType({**self.relations, name.lower(): relation}), self.declared)

    def removing(self, name: str) -> CatalogVersion:
        """Returns the version without a relation and its indexes."""
        kept = {key: r for key, r in self.relations.items() if key != name.lower()}
        declared = {key: i for key, i in self.declared.items() if i.table.lower() != name.lower()}
        return CatalogVersion(MappingProxyType(kept), MappingProxyType(declared))

    def adding_index(self, index: Index) -> CatalogVersion:
        return CatalogVersion(self.relations, MappingProxyType({**self.declared, index.name.lower(): index}))

    def removing_index(self, name: str) -> CatalogVersion:
        declared = {key: i for key, i in self.declared.items() if key != name.lower()}
        return CatalogVersion(self.relations, MappingProxyType(declared))


_NOTHING = CatalogVersion(MappingProxyType({}), MappingProxyType({}))


class Catalog:
    """Stores the current version of what names mean, and replaces it with each change. Threads may read and change it
    at once. A copy is free; a checker declares the names of its text in a copy.
    """

    def __init__(self, version: CatalogVersion = _NOTHING):
        self.version = version
        self._changing = threading.Lock()
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change; a copy has none."""
        self.making: str | None = None
        """The lower-case name of what the statement being checked creates: no reference can mean that yet."""

        self.references: References | None = None
        """Where the names of the texts that are checked with it are noted."""

    def copy(self) -> Catalog:
        made = Catalog(self.version)
        made.references = self.references
        return made

    def __iter__(self) -> Iterator[Relation]:
        return iter(self.version)

    def __contains__(self, name: str) -> bool:
        return name in self.version

    def find(self, name: str) -> Relation | None:
        return self.version.find(name)

    def add(self, *relations: Relation) -> None:
        self._change(lambda version: version.adding(relations))

    def let(self, name: str, relation: Relation) -> None:
        """Lets a name mean a relation that has another name itself."""
        self._change(lambda version: version.letting(name, relation))

    def remove(self, name: str) -> None:
        """Removes a relation and its indexes."""
        self._change(lambda version: version.removing(name))

    def index(self, name: str) -> Index | None:
        return self.version.index(name)

    def indexes(self, table: str | None = None) -> list[Index]:
        """Returns all indexes, or those of a table."""
        return self.version.indexes(table)

    def add_index(self, index: Index) -> None:
        self._change(lambda version: version.adding_index(index))

    def remove_index(self, name: str) -> None:
        self._change(lambda version: version.removing_index(name))

    def _change(self, change: Callable[[CatalogVersion], CatalogVersion]) -> None:
        with self._changing:
            self.version = change(self.version)
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
        """Returns the error for a name that does not exist here, or is something else. A name in FROM, a ``source``,
        may be meant for something outside even if a similar name exists.
        """
        there = self.find(name)
        if there is not None and name.lower() != self.making:
            return UnknownName(f'"{there.name}" is a {there.kind}, not a {what}', place=place)
        otherwise = "declare it first with CREATE STREAM or CREATE TABLE"
        if what == "stream or table" and _TOPIC.fullmatch(name):
            otherwise += f", or read a Kafka topic with {TOPIC_CALL}('{name}')"
        near = did_you_mean(name, [n for n in self.names() if n.lower() != self.making])
        hint = otherwise if near is None else f"{near} If not, {otherwise}" if source else near
        return UnknownName(f'{what} "{name}" is not known', hint=hint, place=place)


Describe = Callable[[str, str, AsOf | None], Relation]
"""(uri, alias, version) → the relation that it names. Raises an Error when it cannot be read."""
