"""Defines the contract of a sink, and finds sinks.

A sink takes the rows of a batch together with the position after it. An ``exact`` sink stores both in the system that
it writes to, and returns its position at a start; the others write a batch again that was interrupted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from millpond.changes import Position
from millpond.extensions import by_scheme, classes_of, offered_classes
from millpond.options import Option, defaults
from millpond.types import Schema


class Sink(ABC):
    """Writes rows, to a URI.

    Rows of an aggregate have the column ``_deleted``, true if the group is gone, and without a key of the query's own
    ``_key``, the text of the group's key.
    """

    kind: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[Option, ...]] = ()
    exact: bool = False
    """Whether it stores the position together with the rows."""

    def __init__(self, uri: str, values: Mapping[str, Any], schema: Schema):
        self.uri = uri
        self.values = defaults(self.options) | dict(values)
        self.schema = schema

    @classmethod
    def is_exact(cls, values: Mapping[str, Any]) -> bool:
        """Returns whether a sink with these options is ``exact``."""
        return cls.exact

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
        """Writes all rows, and returns when they are safe."""

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
