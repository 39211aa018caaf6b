"""Plans: what will run, as frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from millpond.errors import Place
from millpond.sql.aggregate import Aggregation
from millpond.sql.catalog import Relation
from millpond.sql.errortables import error_table
from millpond.sql.fold import Fold
from millpond.sql.joins import StreamJoin
from millpond.sql.resolve import Input, Resolved
from millpond.types import Schema

WAIT = 60.0
"""Seconds that a statement waits for its tables if 'table.wait.timeout' says nothing."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """How the rows of a table that a batch needs are found: by keys.

    ``columns`` of the table equal ``keys``: Spark SQL expressions over the batch, or, when ``of`` names the view of
    a table that was looked up before, columns of that table. ``fields`` are the columns of the batch that the keys
    are, if each is just a column.
    """

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    of: str | None = None
    fields: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TableInput:
    """A table that a batch meets, under the name that it has in the batch's SQL."""

    view: str
    table: str
    lookup: Lookup | None


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One batch: rows of a stream and of tables in, rows out.

    ``columns`` are those of the stream that are needed, ``filter`` a condition on them alone. ``query`` gives the
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
    """Rows of tables come out that no row of the batch meets. A batch without rows gives nothing all the same."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go: a table, an embedded stream, a sink at a URI with ``options``, or whoever asked."""

    kind: Literal["table", "stream", "emit", "sink"]
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def real_time(self) -> bool:
        """Whether rows go there as they come, by Spark alone."""
        return self.kind == "sink" and self.options.get("mode") == "realtime"


def target_of(relation: Relation, options: Mapping[str, Any] | None = None) -> Target:
    """A stream, table or sink as a target; ``options`` are those of the sink."""
    if relation.kind == "sink":
        return Target("sink", relation.name, dict(options or {}))
    return Target("stream" if relation.kind == "stream" else "table", relation.name)


@dataclass(frozen=True, slots=True)
class MissPlan:
    """What becomes of rows that find no match. ``batch`` gives their ``_seq`` and for each of ``tables`` whether it is
    that one. With the mode 'retry' they wait ``timeout`` seconds, and are then treated as ``fallback`` says."""

    batch: BatchPlan
    tables: tuple[str, ...]
    mode: str
    timeout: float
    fallback: str


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """Which row of a keyed table a message ends. ``batch`` gives the key for each row of the stream, from ``columns``
    of the stream; it is None if the key cannot be told from the stream alone."""

    columns: tuple[str, ...] = ()
    batch: BatchPlan | None = None


@dataclass(frozen=True, slots=True)
class SidePlan:
    """One side of a join of streams: ``batch`` gives its rows, of a stream, or of the rows of the join ``below``.
    ``mark`` gives the highest time of the stream in a batch, if the side has a watermark."""

    alias: str
    batch: BatchPlan
    mark: BatchPlan | None
    below: JoinPlan | None


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """A join of two streams. Its rows are the stream that the statement above it reads."""

    join: StreamJoin
    sides: tuple[SidePlan, SidePlan]

    @property
    def streams(self) -> tuple[SidePlan, ...]:
        """The sides that read a stream, from left to right."""
        return tuple(s for side in self.sides for s in (side.below.streams if side.below else (side,)))


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """A running statement."""

    name: str
    text: str
    batch: BatchPlan
    target: Target
    reads: tuple[str, ...]
    place: Place | None = None
    """Where the statement stands in its text."""
    aggregation: Aggregation | None = None
    """For a live aggregate: the batch gives the rows that are merged with what is kept."""
    fold: Fold | None = None
    """For a running UPDATE, DELETE, MERGE or UPSERT: the batch gives the events that are applied to the target."""
    mark: BatchPlan | None = None
    """For windows with a watermark: the highest time of a batch, of all its rows."""

    block: tuple[PipelinePlan, ...] = ()
    """For BEGIN … COMMIT: the batch gives the rows of the stream, which these statements get one after another."""
    on_error: Literal["table", "fail"] = "table"
    """What becomes of a row that cannot be processed: it goes to an error table, or the statement stops."""
    errors_into: str | None = None
    miss: MissPlan | None = None
    wait: float = WAIT
    """Seconds that it waits for tables to be loaded."""
    join: JoinPlan | None = None
    """For a statement over a join of streams: what makes the rows of its batches."""
    keys: KeyPlan | None = None
    """For a keyed table over messages that may end a row: which row they end."""
    part_of: str | None = None
    """The statement that this one is a side of."""

    @property
    def query(self) -> str:
        """The name of the statement in the text."""
        return self.part_of or self.name

    @property
    def streams(self) -> tuple[Relation, ...]:
        """The streams that it reads."""
        if self.join is None:
            return (self.batch.stream.relation,)
        return tuple(side.batch.stream.relation for side in self.join.streams)

    @property
    def writes(self) -> tuple[str, ...]:
        """The names of what it changes or fills."""
        if self.block:
            return tuple(dict.fromkeys(name for member in self.block for name in member.writes))
        returning = self.fold.returning if self.fold is not None else None
        return (self.target.name,) if returning is None else (self.target.name, returning.into.name)

    @property
    def beside(self) -> frozenset[str]:
        """The tables that it, or a statement of its block, meets beside the stream, in lower case."""
        return frozenset(t.table.lower() for plan in (self, *self.block) for t in plan.batch.tables)

    @property
    def has_error_table(self) -> bool:
        """Whether it has an error table of its own."""
        misses = self.miss is not None and "error" in (self.miss.mode, self.miss.fallback)
        return self.errors_into is None and (self.on_error == "table" or misses)

    @property
    def errors(self) -> str:
        """The table of its error records."""
        return self.errors_into or error_table(self.name)


@dataclass(frozen=True, slots=True)
class Parts:
    """``columns`` of a view's rows divide it; ``inputs`` are the columns of each input, by view, that equal them."""

    columns: tuple[str, ...]
    inputs: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """A table that follows a query over tables. Without ``parts`` the query is answered as a whole and compared."""

    name: str
    text: str
    query: Resolved
    target: Target
    parts: Parts | None
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A table that is filled once from sources that have an end.

    ``chunked``: its rows can be made chunk by chunk of the one source ``by``; else the query runs as a whole.
    """

    name: str
    text: str
    query: Resolved
    target: Target
    by: Input | None
    place: Place | None = None
    errors: str | None = None
    """The table of records that cannot be read; without it one of them stops the load."""
