"""Defines the contract of a sink, and finds sinks.

A sink takes the rows of a batch together with the position after it. An ``exact`` sink stores both in the system that
it writes to, and returns its position at a start; the others write a batch again that was interrupted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

import pyarrow as pa

from millpond.changelog import Style
from millpond.changes import Position
from millpond.extensions import by_scheme, classes_of, offered_classes
from millpond.options import Option, defaults
from millpond.types import Schema

DELIVERY = Option(
    "delivery",
    "choice",
    "exactly-once: the position is stored with the rows. at-least-once: after a crash a batch may be written again. By "
    "default exactly-once, unless the query is an aggregate, joins streams or waits for a match ('on.miss' = 'retry')",
    None,
    ("at-least-once", "exactly-once"),
)
"""The option of sinks that store the position if the statement allows it."""


def settled(values: Mapping[str, Any], *, durable: bool) -> Mapping[str, Any]:
    """Returns the options as an app uses them: without a state directory nothing is known after a restart."""
    if durable or values.get("delivery", "") is not None:
        return values
    return {**values, "delivery": "at-least-once"}


class Sink(ABC):
    """Writes rows, to a URI.

    Rows of an aggregate have the column ``_deleted``, true if the group is gone, and, if the sink is ``keyed``, without
    a key of the query's own ``_key``, the text of the group's key.
    """

    kind: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[Option, ...]] = ()
    exact: bool = False
    """Whether it stores the position together with the rows."""
    keyed: ClassVar[bool] = True
    """Whether rows of an aggregate have the text of their key."""
    takes_changes: ClassVar[Style] = "op"
    """How it takes the changes of a table: EMIT CHANGES."""
    divides: ClassVar[bool] = True
    """Whether a batch of which many rows are refused is written in halves. Not if rows are refused when others were
    accepted: these would be written again.
    """
    for_clients: ClassVar[bool] = True
    """Whether statements of HTTP clients may write to a URI that the server allows. Not where a source has the same
    scheme: there the server allows to read.
    """

    known_batch: int | None = None
    """The batch that the app has noted as written, if any; set before ``open``."""

    def __init__(self, uri: str, values: Mapping[str, Any], schema: Schema):
        self.uri = uri
        self.values = defaults(self.options) | dict(values)
        self.schema = schema

    @classmethod
    def is_exact(cls, values: Mapping[str, Any]) -> bool:
        """Returns whether a sink with these options is ``exact``."""
        return cls.exact

    @classmethod
    def check_statement(cls, uri: str, values: Mapping[str, Any], schema: Schema, *, running: bool) -> None:
        """Raises an error if no statement with these options and columns can be written. Opens nothing."""
        return

    @classmethod
    def check_groups(cls, uri: str, values: Mapping[str, Any], schema: Schema) -> None:
        """Raises an error if no live aggregate with these options and columns can be written. Opens nothing."""
        return

    @classmethod
    def check_changes(cls, uri: str, values: Mapping[str, Any], schema: Schema) -> None:
        """Raises an error if changes of a table cannot be written with these options and columns. Opens nothing."""
        return

    @property
    @abstractmethod
    def guarantee(self) -> str:
        """Returns what EXPLAIN says about delivery."""

    @property
    def writer(self) -> str:
        """Returns who writes it if Spark does not, for EXPLAIN."""
        return "its connector in the driver"

    def open(self, name: str) -> Position | None:
        """Prepares to write for the query of that name, unique among all apps. An exact sink returns its stored
        position.
        """
        return None

    @property
    def is_open(self) -> bool:
        """Returns whether ``write`` may be called. After a failed write an exact sink must be opened again."""
        return True

    def check(self, rows: pa.Table) -> None:
        """Raises a DataError if a row cannot be written; writes nothing."""
        return

    @abstractmethod
    def write(self, rows: pa.Table, position: Position | None) -> None:
        """Writes all rows, and returns when they are safe. Raises a DataError if some are refused: ``check`` then finds
        them, and the others are written again, with the same position.
        """

    def accept_refused(self) -> None:
        """Forgets which rows were refused: they are about to be written once more."""
        return

    @property
    def writes_none(self) -> bool:
        """Returns whether a statement that runs once and finds no rows writes too: a file without rows."""
        return False

    @property
    def waiting(self) -> int | None:
        """Returns how much is safe and not visible yet, because it waits for more; None if nothing ever does."""
        return None

    def settle(self) -> None:
        """Makes visible what has waited long enough. Called now and then, while nothing is written."""
        return

    def make_visible(self) -> None:
        """Makes visible all that waits, before the query is dropped. An error keeps the query."""
        return

    def forget(self, name: str) -> None:
        """Removes what is stored for the query of that name, which was dropped, but not its rows."""
        return

    def close(self) -> None:
        """Releases the resources of the sink. It may be called twice."""
        return


class Division(NamedTuple):
    """Says how encoded rows are divided among tasks that write at the same time, ``tasks`` at the most. Those with the
    same value of ``by``, an expression of Spark, are written by one task, in the order of the stream; where it is NULL,
    by any.
    """

    tasks: int
    by: str


class NativeSink(Sink):
    """Describes a sink that a Spark format writes. Picklable: executors encode."""

    format: ClassVar[str]

    @property
    def by_spark(self) -> bool:
        """Returns whether Spark writes it; else ``write`` does."""
        return not self.exact

    @abstractmethod
    def encode(self, rows: pa.Table) -> pa.Table:
        """Returns the rows as Spark's format takes them."""

    def division(self) -> Division | None:
        """Returns how encoded rows are divided among tasks; None if one task writes all of them, in order."""
        return None

    def measures(self) -> tuple[str, ...]:
        """Returns aggregates of Spark over encoded rows, by which ``check_measured`` knows whether all can be
        written.
        """
        return ()

    def check_measured(self, *found: Any) -> None:
        """Raises a DataError if rows with these measures cannot be written, as ``check`` does."""
        return

    @abstractmethod
    def encoding_sql(self, view: str) -> str:
        """Returns what ``encode`` does, as a query of Spark over rows under the name ``view``."""

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Returns the options of Spark's format."""


class TaskWriter(ABC):
    """Writes the rows of tasks where nobody sees them yet. Picklable."""

    schema: ClassVar[Schema]
    """The columns of what ``write`` returns; ``rows`` and ``bytes`` are among them."""

    @property
    @abstractmethod
    def most(self) -> int:
        """Returns how many bytes of rows are written at a time, about."""

    @property
    @abstractmethod
    def by(self) -> tuple[str, ...]:
        """Returns columns; one task should write all rows with the same values in them."""

    def of_task(self, number: int) -> Self:
        """Returns what a task writes with, by its number among the tasks of the batch."""
        return self

    @abstractmethod
    def write(self, rows: pa.Table) -> pa.Table:
        """Writes rows of a task, which may run twice; returns what whoever publishes them needs to know."""


class DividedSink(Sink):
    """Describes a sink of which tasks may write the rows of a batch, hidden, before the driver makes them visible."""

    @abstractmethod
    def task_writer(self, *, local: bool) -> TaskWriter | None:
        """Returns what tasks write with; None if ``write`` is to be used. Tasks are ``local`` if this machine runs
        them. The sink must be open.
        """

    @abstractmethod
    def publish(self, written: pa.Table, position: Position | None) -> None:
        """Makes visible what the tasks of a batch have written, together with the position."""


@cache
def sinks() -> tuple[type[Sink], ...]:
    """Returns every sink of this package, by kind."""
    found = classes_of("sink", Sink)
    return tuple(sorted(found, key=lambda s: s.kind))


def every_sink() -> tuple[type[Sink], ...]:
    """Returns every sink of this package and of others."""
    return (*sinks(), *offered_classes("sink", Sink))


def find_sink(uri: str) -> type[Sink]:
    """Returns the sink for the scheme of a URI."""
    return by_scheme(uri, "sink", Sink, sinks(), 'INSERT INTO "{scheme}://" is not there')
