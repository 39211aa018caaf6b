"""Defines what a checked statement knows beyond its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlglot import exp

from millpond.errors import InvalidOption
from millpond.options import Option, Setting, find_option, read_options
from millpond.sql.catalog import Index, Limits, Relation
from millpond.sql.fold import Fold
from millpond.sql.joins.model import all_inputs
from millpond.sql.mutation import Mutation
from millpond.sql.resolve import Resolved
from millpond.sql.statements import CreateView, Explain, Select, Statement
from millpond.types import Schema


class World(Protocol):
    """Declares what the checker needs from the packages above it."""

    def source_options(self, uri: str) -> Sequence[Option]:
        """Returns the declared options of the source at a URI. Raises NotSupported."""

    def backend_options(self, extension: str) -> Sequence[Option]:
        """Returns the declared options of a table backend. Raises UnknownName or NotSupported."""

    def sink_options(self, uri: str) -> Sequence[Option]:
        """Returns the declared options of the sink at a URI. Raises NotSupported."""

    def place(self, values: Mapping[str, Any]) -> str | None:
        """Returns the database that stores a table with these options; None for the app's journal."""

    def describe(
        self, uri: str, values: Mapping[str, Any], declared: Schema | None, *, table: bool = False
    ) -> Relation:
        """Describes what a URI returns, to a ``table`` or to a query. Raises an Error if it cannot be read."""

    def changes(self, uri: str, values: Mapping[str, Any], declared: Schema | None) -> Schema | None:
        """Returns the columns of a stream of the changes at a URI; None if it returns rows instead."""

    def keyed(self, uri: str, values: Mapping[str, Any], declared: Schema | None) -> str | None:
        """Returns why the messages at a URI identify rows by their keys, if they do. Raises an Error if that is
        unknown.
        """


@dataclass(frozen=True)
class Checked:
    """Represents a statement without mistakes.

    ``resolved`` is its query. For INSERT and CTAS, the columns already have the order, names and types of the target.
    For a running UPDATE, DELETE, MERGE or UPSERT it is the query of the events, which ``fold`` applies. ``relation`` is
    what the statement declares. ``reads`` are the names it needs. ``sources`` are the option values of each URI that
    its query reads.
    """

    statement: Statement
    resolved: Resolved | None = None
    relation: Relation | None = None
    target: Relation | None = None
    values: tuple[tuple[exp.Expr, ...], ...] = ()
    mutation: Mutation | None = None
    index: Index | None = None
    fold: Fold | None = None
    block: tuple[Checked, ...] = ()
    table_options: Mapping[str, Any] = field(default_factory=dict)
    source_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    keyed: str | None = None
    """Why a table without a declared key is keyed by the keys of messages."""
    query_options: Mapping[str, Any] = field(default_factory=dict)
    """The options of a running statement."""
    captured: Relation | None = None
    """The relation whose changes a stream contains."""
    misses: tuple[Resolved, tuple[str, ...]] | None = None
    """With 'on.miss': the query for rows without a match, and the tables it reports."""
    op: str | None = None
    """For a running SELECT: the column that says what happened to each row."""
    skip: bool = False
    """IF NOT EXISTS and the object exists: nothing to do."""

    @property
    def running(self) -> bool:
        return self.resolved is not None and self.resolved.running

    @property
    def runs(self) -> bool:
        """Returns whether the statement itself is running, and not just the name of a query."""
        return self.running and (not isinstance(self.statement, CreateView) or self.statement.materialized)

    @property
    def live(self) -> bool:
        """Returns whether it follows a query over tables: a materialized view, or EMIT CHANGES."""
        if self.resolved is None or self.resolved.running:
            return False
        if self.relation is not None:
            return self.relation.live
        s = self.statement.statement if isinstance(self.statement, Explain) else self.statement
        return isinstance(s, Select) and s.query.emit == "changes"

    @property
    def reads(self) -> tuple[str, ...]:
        if self.resolved is None:
            return ()
        inputs = (*all_inputs(self.resolved.inputs), *(self.fold.tables if self.fold is not None else ()))
        names = [i.relation.name for i in inputs if not _is_source(i.relation)]
        return tuple(dict.fromkeys((*names, *(name for c in self.block for name in c.reads))))


def _is_source(relation: Relation) -> bool:
    return relation.kind == "source"


ON_CONFLICT = Option(
    "on.conflict",
    "choice",
    "What INSERT does with a primary key that is there, or comes twice. upsert: the last row wins. error: the"
    " statement fails and changes nothing.",
    default="upsert",
    choices=("upsert", "error"),
)

COMMON_TABLE_OPTIONS: tuple[Option, ...] = (
    Option("extension", "text", "The backend that stores the rows.", default="memory"),
    Option(
        "primary.key",
        "text",
        "The key columns of CREATE TABLE … AS, separated by commas; '' for none: every row of a topic whose"
        " messages have keys is then appended.",
    ),
    Option(
        "refresh",
        "choice",
        "live: the table follows its inputs. once: it is a copy, made when the statement runs.",
        default="live",
        choices=("live", "once"),
    ),
    ON_CONFLICT,
)

RUNNING_OPTIONS: tuple[Option, ...] = (
    Option(
        "query.name", "text", "The name of the query in SHOW QUERIES, and for PAUSE, STOP and DROP QUERY."
    ),
    Option(
        "on.error",
        "choice",
        "What happens to a row that cannot be processed. table: it goes to the error table of "
        "the query, and the query continues. fail: the query stops.",
        default="table",
        choices=("table", "fail"),
    ),
    Option(
        "on.miss",
        "choice",
        "What happens to a row without a match in a joined table. null: the columns of the table "
        "are NULL, as with LEFT JOIN. drop: the row is dropped, as with INNER JOIN. default: the "
        "columns have the values of 'default.<column>'. error: the row goes to the error table. "
        "fail: the query stops. retry: the row waits for a match. Without this option the kind "
        "of join decides, and rows without a match are not counted.",
        choices=("null", "drop", "default", "error", "fail", "retry"),
    ),
    Option("on.miss.timeout", "duration", "How long a row waits with 'on.miss' = 'retry'; 60s by default."),
    Option(
        "on.miss.fallback",
        "choice",
        "What happens to a row after 'on.miss.timeout', as in 'on.miss'; error by default.",
        choices=("null", "drop", "default", "error", "fail"),
    ),
    Option(
        "table.wait.timeout",
        "duration",
        "How long the query waits for its tables to be loaded before it starts without them, or, "
        "with 'on.miss' = 'fail', fails.",
        default=60.0,
    ),
)
"""Options of every running statement."""

SELECT_OPTIONS: tuple[Option, ...] = (
    Option(
        "op.column",
        "text",
        "The name of an additional first column with the operation of each row: insert or "
        "delete. An update is a delete of the old row and an insert of the new one. Groups of a "
        "stream are upsert, where each version replaces the previous one, and delete.",
    ),
)
"""Options of SELECT."""

BATCH_OPTIONS: tuple[Option, ...] = (
    Option(
        "batch.max.rows",
        "int",
        "The maximum number of rows in one batch, if the source can tell.",
        1_000_000,
    ),
    Option(
        "batch.max.time",
        "duration",
        "The target for the maximum time of a batch: the number of rows adapts to it.",
        2.0,
    ),
)
"""Options of every stream: how much of it is read at once."""

STREAM_OPTIONS: tuple[Option, ...] = (
    Option(
        "connector", "text", "The URI that the stream reads. Without it programs send rows to the stream."
    ),
    *BATCH_OPTIONS,
)


def limits_of(owner: str, settings: Sequence[Setting]) -> Limits:
    """Returns the limits that a stream sets for its batches. Raises InvalidOption."""
    values = read_options(owner, BATCH_OPTIONS, [x for x in settings if find_option(BATCH_OPTIONS, x.name)])
    limits = Limits(values["batch.max.rows"], values["batch.max.time"])
    if limits.rows < 1 or limits.seconds <= 0:
        wrong = "batch.max.rows" if limits.rows < 1 else "batch.max.time"
        raise InvalidOption(f'option "{wrong}" of {owner} must be greater than 0')
    return limits


LATER: Mapping[str, str] = {
    "retention": "store rows for a limited time",
    "ttl": "store rows for a limited time",
}
"""Options of the language that this version cannot support: they are refused by name."""


def named(settings: Sequence[Setting], name: str) -> Setting | None:
    return next((s for s in settings if s.name.lower() == name), None)
