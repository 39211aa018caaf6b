"""Defines plans: what will run, as frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from millpond.engine_rule import BY_APP, EngineRule
from millpond.errors import Place
from millpond.sql.aggregate import Aggregation
from millpond.sql.catalog import Relation
from millpond.sql.checked import ChangesForm, SourceOptions
from millpond.sql.errortables import error_table
from millpond.sql.fold import Fold
from millpond.sql.incremental.nodes import ByChanges
from millpond.sql.joins import StreamJoin
from millpond.sql.resolve import Input, Resolved
from millpond.types import Schema

WAIT = 60.0
"""Seconds that a statement waits for its tables without 'table.wait.timeout'."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Describes how to find the rows of a table that a batch needs: by keys.

    ``columns`` of the table equal ``keys``: Spark SQL expressions over the batch, or, when ``of`` names the view of a
    table that was looked up before, columns of that table. ``fields`` are the columns of the batch that are the keys,
    if each is just a column.
    """

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    of: str | None = None
    fields: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TableInput:
    """Names a table that a batch reads, and its view in the batch's SQL."""

    view: str
    table: str
    lookup: Lookup | None


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Describes one batch: rows of a stream and of tables in, rows out.

    ``columns`` are the needed columns of the stream, ``filter`` a condition on them alone. ``query`` returns the
    columns of ``output`` and, unless rows are grouped, ``_seq``; ``sql`` is the same for Spark.
    """

    stream: Input
    columns: tuple[str, ...]
    filter: str | None
    tables: tuple[TableInput, ...]
    query: Resolved
    sql: str
    output: Schema
    keeps: bool = False
    """Whether rows of tables are emitted that match no row of the batch. A batch without rows still emits nothing."""


@dataclass(frozen=True, slots=True)
class Target:
    """Describes where rows go: a table, an embedded stream, a sink at a URI with ``options``, or the caller."""

    kind: Literal["table", "stream", "emit", "sink"]
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def real_time(self) -> bool:
        """Returns whether rows go there as they come, by Spark alone."""
        return self.kind == "sink" and self.options.get("mode") == "realtime"


def target_of(relation: Relation, options: Mapping[str, Any] | None = None) -> Target:
    """Returns a stream, table or sink as a target; ``options`` are those of the sink."""
    if relation.kind == "sink":
        return Target("sink", relation.name, dict(options or {}))
    return Target("stream" if relation.kind == "stream" else "table", relation.name)


@dataclass(frozen=True, slots=True)
class MissPlan:
    """Describes what happens to rows without a match. ``batch`` returns their ``_seq`` and for each of ``tables``
    whether the match is missing there. With the mode 'retry' they wait ``timeout`` seconds, and are then treated as
    ``fallback`` says.
    """

    batch: BatchPlan
    tables: tuple[str, ...]
    mode: str
    timeout: float
    fallback: str


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """Describes which row of a keyed table a message deletes. ``batch`` returns the key for each row of the stream,
    from ``columns`` of the stream; it is None if the stream alone does not determine the key.
    """

    columns: tuple[str, ...] = ()
    batch: BatchPlan | None = None


@dataclass(frozen=True, slots=True)
class SidePlan:
    """Describes one side of a join of streams: ``batch`` returns its rows, from a stream, or from the rows of the join
    ``below``. ``mark`` returns the highest time of the stream in a batch, if the side has a watermark.
    """

    alias: str
    batch: BatchPlan
    mark: BatchPlan | None
    below: JoinPlan | None


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """Describes a join of two streams. Its rows are the stream that the statement above it reads."""

    join: StreamJoin
    sides: tuple[SidePlan, SidePlan]

    @property
    def streams(self) -> tuple[SidePlan, ...]:
        """Returns the sides that read a stream, from left to right."""
        return tuple(s for side in self.sides for s in (side.below.streams if side.below else (side,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """Describes a running statement, or one side of it; each kind has a type of its own."""

    name: str
    text: str
    batch: BatchPlan
    target: Target
    reads: tuple[str, ...]
    place: Place | None
    """The place of the statement in its text."""
    on_error: Literal["table", "fail"] = "table"
    """What happens to a row that cannot be processed: it becomes an error record, or the statement stops."""
    errors_into: str | None = None
    miss: MissPlan | None = None
    wait: float = WAIT
    """Seconds that it waits for tables to load."""
    rule: EngineRule = BY_APP
    """Which engine evaluates its batches."""
    start: Literal["earliest", "latest"] | None = None
    """Where a new query begins to read, if the stream does not decide."""
    join: JoinPlan | None = None
    """For a statement over a join of streams: the join that produces the rows of its batches."""

    @property
    def query(self) -> str:
        """Returns the name of the statement in the text."""
        return self.name

    @property
    def streams(self) -> tuple[Relation, ...]:
        """Returns the streams that it reads."""
        if self.join is None:
            return (self.batch.stream.relation,)
        return tuple(side.batch.stream.relation for side in self.join.streams)

    @property
    def writes(self) -> tuple[str, ...]:
        """Returns the names of what it changes or fills."""
        return (self.target.name,)

    @property
    def joined_tables(self) -> frozenset[str]:
        """Returns the tables that it reads in addition to the stream, in lower case."""
        return frozenset(t.table.lower() for t in self.batch.tables)

    @property
    def has_error_table(self) -> bool:
        """Returns whether it has an error table of its own."""
        misses = self.miss is not None and "error" in (self.miss.mode, self.miss.fallback)
        return self.errors_into is None and (self.on_error == "table" or misses)

    @property
    def errors(self) -> str:
        """Returns the table of its error records."""
        return self.errors_into or error_table(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsPlan(PipelinePlan):
    """Describes a statement whose rows are evaluated one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedPlan(RowsPlan):
    """Describes a statement that fills a keyed table, over messages that may delete a row of it."""

    keys: KeyPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesPlan(RowsPlan):
    """Describes a statement that writes the changes of ``table``. The stream of its batches is the changelog of the
    table; its query is evaluated over the rows before and after each change. ``written`` are the columns of what is
    written.
    """

    table: str
    key: tuple[str, ...]
    """The primary key of the table."""
    named_by: tuple[str, ...]
    """The outputs that identify what is written, if the target writes by key."""
    form: ChangesForm
    written: Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsPlan(PipelinePlan):
    """Describes a live aggregate: the batch returns the rows that are merged with the stored state."""

    aggregation: Aggregation
    mark: BatchPlan | None
    """For windows with a watermark: the highest time of a batch, of all its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldPlan(PipelinePlan):
    """Describes a running UPDATE, DELETE, MERGE or UPSERT: the batch returns the events that are applied."""

    fold: Fold

    @property
    def writes(self) -> tuple[str, ...]:
        returning = self.fold.returning
        return (self.target.name,) if returning is None else (self.target.name, returning.into.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan(PipelinePlan):
    """Describes BEGIN … COMMIT: the batch returns the rows of the stream, which the members get one after another."""

    members: tuple[RowsPlan | GroupsPlan | FoldPlan, ...]

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for member in self.members for name in member.writes))

    @property
    def joined_tables(self) -> frozenset[str]:
        return frozenset(name for member in self.members for name in member.joined_tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedStreamPlan(PipelinePlan):
    """Describes one of the streams of the statement ``part_of``, which joins them."""

    part_of: str
    mark: BatchPlan | None
    """For a side with a watermark: the highest time of a batch."""

    @property
    def query(self) -> str:
        return self.part_of


StatementPlan = RowsPlan | GroupsPlan | FoldPlan | BlockPlan


@dataclass(frozen=True, slots=True)
class Parts:
    """Describes how a view is divided: ``columns`` of its rows divide it; ``inputs`` are the columns of each input, by
    view, that equal them.
    """

    columns: tuple[str, ...]
    inputs: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """Describes a table that follows a query over tables.

    With ``by_changes.root`` changes go through operators. Otherwise, and where that is cheaper, the rows with the same
    ``parts`` are recomputed; without these all rows.
    """

    name: str
    text: str
    query: Resolved
    target: Target
    parts: Parts | None
    by_changes: ByChanges
    place: Place | None = None
    refresh: str = "auto"
    in_commit: bool = False
    """Whether it changes in the commit that changes its inputs; otherwise after it."""
    state_limit: int | None = None
    """The bytes that the state of its operators may take."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Describes a table that is loaded once from finite sources.

    ``chunked``: its rows can be computed chunk by chunk of the one source ``by``; otherwise the query runs as a whole.
    """

    name: str
    text: str
    query: Resolved
    target: Target
    by: Input | None
    place: Place | None = None
    errors: str | None = None
    """The table of error records; without it a record that cannot be read stops the load."""
    once: bool = False
    """Whether the table is a copy, made once: it does not follow its sources."""
    null_keys: bool = False
    """Whether NULL is a valid key value."""
    source_options: SourceOptions = field(default_factory=dict)
    rule: EngineRule = BY_APP
    """Which engine reads and evaluates files."""

    @property
    def follows(self) -> bool:
        """Returns whether the table follows outside sources."""
        return not self.once and any(i.relation.follows for i in self.query.inputs)
