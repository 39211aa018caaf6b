"""Defines checked statements: what is known of a statement without mistakes, one type for each kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from sqlglot import exp

from millpond.changelog import Envelope, Style
from millpond.sql import statements as st
from millpond.sql.catalog import Relation
from millpond.sql.fold import Fold
from millpond.sql.joins.model import all_inputs
from millpond.sql.mutation import Mutation
from millpond.sql.on_miss import MissQuery
from millpond.sql.resolve import Input, Resolved
from millpond.types import Schema

SourceOptions = Mapping[str, Mapping[str, Any]]
"""The option values of each URI that a statement reads."""


@dataclass(frozen=True, slots=True)
class ChangesForm:
    """Says how the changes of a table are written: in which ``envelope``, and to what kind of target."""

    envelope: Envelope
    style: Style


@dataclass(frozen=True)
class Checked:
    """Represents a statement without mistakes; each kind has a type of its own."""

    statement: st.Statement

    @property
    def running(self) -> bool:
        """Returns whether its query reads a stream, so that it never ends."""
        return False

    @property
    def runs(self) -> bool:
        """Returns whether the statement itself is running, and not just the name of a query."""
        return self.running

    @property
    def live(self) -> bool:
        """Returns whether it follows a query over tables: a materialized view, or EMIT CHANGES."""
        return False

    @property
    def queries(self) -> tuple[Resolved, ...]:
        """Returns its queries."""
        return ()

    @property
    def inputs(self) -> Iterator[Input]:
        """Yields what it reads, with what is under joins of streams in their place."""
        return all_inputs(i for query in self.queries for i in query.inputs)

    @property
    def reads(self) -> tuple[str, ...]:
        """Returns the names that it reads."""
        found = (i.relation for i in self.inputs)
        return tuple(dict.fromkeys(r.rows_of or r.name for r in found if r.kind != "source"))

    @property
    def declares(self) -> Relation | None:
        """Returns what it creates, if that is a stream, table or view."""
        return None

    @property
    def changes(self) -> Relation | None:
        """Returns where its rows go, if they do not go to the caller."""
        return None

    @property
    def needs(self) -> frozenset[str]:
        """Returns the tables that must be loaded before it runs; a running one waits for them when it starts."""
        if self.running:
            return frozenset()
        named = (self.declares, self.changes)
        return frozenset((*self.reads, *(r.name for r in named if r is not None)))


@dataclass(frozen=True)
class CheckedQuery(Checked):
    """Represents a statement with a query."""

    resolved: Resolved
    source_options: SourceOptions

    @property
    def running(self) -> bool:
        return self.resolved.running

    @property
    def queries(self) -> tuple[Resolved, ...]:
        return (self.resolved,)

    def with_schema(self, schema: Schema) -> Self:
        """Returns the statement with other types of the columns of its query."""
        return replace(self, resolved=replace(self.resolved, schema=schema))


@dataclass(frozen=True)
class CheckedRunnable(CheckedQuery):
    """Represents a statement that runs for as long as the app if its query does. ``query_options`` are the options that
    it has then. ``misses``, with 'on.miss', is the query for rows without a match, and the tables that it reports.
    """

    query_options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    misses: MissQuery | None = field(default=None, kw_only=True)
    form: ChangesForm | None = field(default=None, kw_only=True)
    """How the changes of a table are written, for EMIT CHANGES into a target."""


@dataclass(frozen=True)
class CheckedSelect(CheckedRunnable):
    """Represents SELECT. ``op``, for one that runs, is the column that says what happened to each row."""

    statement: st.Select
    op: str | None

    @property
    def live(self) -> bool:
        return not self.running and self.statement.query.emit == "changes"


@dataclass(frozen=True)
class CheckedInsert(CheckedRunnable):
    """Represents INSERT of a query, whose columns have the order, names and types of the target. ``sink_options`` are
    those of a target outside.
    """

    statement: st.Insert
    target: Relation
    sink_options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    @property
    def changes(self) -> Relation:
        return self.target


@dataclass(frozen=True)
class CheckedValues(Checked):
    """Represents INSERT of VALUES. A row has a value for each column of the target."""

    statement: st.Insert
    target: Relation
    rows: tuple[tuple[exp.Expr, ...], ...]

    @property
    def changes(self) -> Relation:
        return self.target


@dataclass(frozen=True)
class CheckedMutation(Checked):
    """Represents an UPDATE, DELETE, MERGE, UPSERT or TRUNCATE that runs once."""

    mutation: Mutation
    source_options: SourceOptions

    @property
    def queries(self) -> tuple[Resolved, ...]:
        return tuple(part.query for part in self.mutation.parts)

    @property
    def changes(self) -> Relation:
        return self.mutation.target


@dataclass(frozen=True)
class CheckedFold(CheckedRunnable):
    """Represents a running UPDATE, DELETE, MERGE or UPSERT: its query returns the events that the fold applies."""

    fold: Fold

    @property
    def inputs(self) -> Iterator[Input]:
        yield from super().inputs
        yield from self.fold.tables

    @property
    def changes(self) -> Relation:
        return self.fold.target


@dataclass(frozen=True)
class CheckedBlock(CheckedRunnable):
    """Represents BEGIN … COMMIT over a stream: its query returns the rows of the stream, which each member reads."""

    statement: st.Block
    members: tuple[CheckedInsert | CheckedFold, ...]

    @property
    def inputs(self) -> Iterator[Input]:
        yield from super().inputs
        for member in self.members:
            yield from member.inputs

    @property
    def changes(self) -> Relation:
        return self.members[0].changes


@dataclass(frozen=True)
class CheckedTransaction(Checked):
    """Represents BEGIN … COMMIT or ROLLBACK that runs once, with its first and last statement."""

    statement: st.Block
    members: tuple[Checked, ...]


@dataclass(frozen=True)
class CheckedStream(Checked):
    """Represents CREATE STREAM without a query."""

    statement: st.CreateStream
    relation: Relation
    source_options: SourceOptions = field(default_factory=dict)

    @property
    def declares(self) -> Relation:
        return self.relation


@dataclass(frozen=True)
class CheckedCapture(CheckedStream):
    """Represents CREATE STREAM of the changes of ``captured``, a table of a database."""

    captured: Relation = field(kw_only=True)


@dataclass(frozen=True)
class CheckedTable(Checked):
    """Represents CREATE TABLE without a query."""

    statement: st.CreateTable
    relation: Relation
    table_options: Mapping[str, Any]

    @property
    def declares(self) -> Relation:
        return self.relation


@dataclass(frozen=True)
class CheckedAs(CheckedRunnable):
    """Represents CREATE … AS: the rows of a query fill what it creates."""

    relation: Relation

    @property
    def declares(self) -> Relation:
        return self.relation

    @property
    def changes(self) -> Relation:
        return self.relation

    def with_schema(self, schema: Schema) -> Self:
        return replace(super().with_schema(schema), relation=replace(self.relation, schema=schema))


@dataclass(frozen=True)
class CheckedStreamAs(CheckedAs):
    """Represents CREATE STREAM … AS."""

    statement: st.CreateStream


@dataclass(frozen=True)
class CheckedTableAs(CheckedAs):
    """Represents CREATE TABLE … AS and CREATE MATERIALIZED VIEW. ``keyed`` says why a table without a declared key is
    keyed by the keys of messages, if it is.
    """

    statement: st.CreateTable | st.CreateView
    table_options: Mapping[str, Any]
    keyed: str | None

    @property
    def live(self) -> bool:
        return not self.running and self.relation.live


@dataclass(frozen=True)
class CheckedView(CheckedQuery):
    """Represents CREATE VIEW: the name of a query."""

    statement: st.CreateView
    relation: Relation

    @property
    def runs(self) -> bool:
        return False

    @property
    def declares(self) -> Relation:
        return self.relation

    def with_schema(self, schema: Schema) -> Self:
        return replace(super().with_schema(schema), relation=replace(self.relation, schema=schema))


CheckedCreate = CheckedStream | CheckedStreamAs | CheckedTable | CheckedTableAs | CheckedView
"""What declares a relation."""
CheckedWrite = CheckedInsert | CheckedFold | CheckedBlock | CheckedStreamAs | CheckedTableAs
"""What writes rows of a query to a target, once or for as long as the app."""


@dataclass(frozen=True)
class CheckedNothing(Checked):
    """Represents a statement that finds nothing to do: IF NOT EXISTS, and it exists; IF EXISTS, and it does not."""


@dataclass(frozen=True)
class CheckedExplain(Checked):
    """Represents EXPLAIN of ``inner``."""

    statement: st.Explain
    inner: Checked
    existing: Relation | None = None
    """The relation that CREATE after EXPLAIN ANALYZE would create, if it exists."""

    @property
    def running(self) -> bool:
        return self.inner.running

    @property
    def runs(self) -> bool:
        return self.inner.runs

    @property
    def live(self) -> bool:
        return self.inner.live

    @property
    def queries(self) -> tuple[Resolved, ...]:
        return self.inner.queries

    @property
    def needs(self) -> frozenset[str]:
        return self.inner.needs
