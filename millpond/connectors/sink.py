"""The contract of a sink, and how one is found.

A sink takes the rows of a batch together with the position after it. One that is ``exact`` makes both count in the
system that it writes to, and tells at a start how far it has come; the others write a batch again that was cut off.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import pyarrow as pa

from millpond.changes import Position
from millpond.extensions import by_scheme, classes_of, offered_classes
from millpond.options import Option, defaults
from millpond.types import Schema


class Sink(ABC):
    """Where rows go, at a URI."""

    kind: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[Option, ...]] = ()
    exact: bool = False

    def __init__(self, uri: str, values: Mapping[str, Any], schema: Schema):
        self.uri = uri
        self.values = defaults(self.options) | dict(values)
        self.schema = schema

    @property
    @abstractmethod
    def guarantee(self) -> str:
        """What EXPLAIN says about delivery."""

    def open(self, name: str) -> Position | None:
        """Makes ready to write for the query of that name, unique among all apps. An exact sink answers the position
        that it holds."""
        return None

    @property
    def is_open(self) -> bool:
        """Whether ``write`` may be called. After one that failed an exact sink has to be opened anew."""
        return True

    def check(self, rows: pa.Table) -> None:
        """Raises a DataError if a row cannot be written; writes nothing."""
        return

    @abstractmethod
    def write(self, rows: pa.Table, position: Position | None) -> None:
        """Writes all rows, and returns when they are safe."""

    def close(self) -> None:
        """Frees what the sink holds. It may be called twice."""
        return


class NativeSink(Sink):
    """Written by a format of Spark."""

    format: ClassVar[str]

    @property
    def by_spark(self) -> bool:
        """Whether Spark writes it; else ``write`` does."""
        return not self.exact

    @abstractmethod
    def encode(self, rows: pa.Table) -> pa.Table:
        """The rows as Spark's format takes them."""

    @abstractmethod
    def encoding_sql(self, view: str) -> str:
        """What ``encode`` does, as a query of Spark over rows under the name ``view``."""

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """The options of Spark's format."""


@cache
def sinks() -> tuple[type[Sink], ...]:
    """Every sink of this package, by kind."""
    found = classes_of("sink", Sink)
    return tuple(sorted(found, key=lambda s: s.kind))


def every_sink() -> tuple[type[Sink], ...]:
    """Every sink of this package and of others."""
    return (*sinks(), *offered_classes("sink", Sink))


def find_sink(uri: str) -> type[Sink]:
    """The sink for the scheme of a URI."""
    return by_scheme(uri, "sink", Sink, sinks(), 'INSERT INTO "{scheme}://" is not there')
