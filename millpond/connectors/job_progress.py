"""Defines how far a job of another system has read and written, so that a statement can go on from there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from millpond.changes import Offset
from millpond.connectors.source import Source
from millpond.types import Schema


@dataclass(frozen=True, slots=True)
class TopicsProgress:
    """Contains the next offset of each partition, by topic."""

    topics: Mapping[str, Mapping[str, int]]

    def __str__(self) -> str:
        return "; ".join(
            f'topic "{topic}", next offsets {_listed(offsets)}' for topic, offsets in self.topics.items()
        )


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Describes a file as it was when it was read: ``modified`` are milliseconds since 1970."""

    path: str
    modified: int


@dataclass(frozen=True, slots=True)
class FilesProgress:
    """Lists the files that were read, in the order in which they were."""

    files: tuple[ReadFile, ...]

    def __str__(self) -> str:
        last = f', the last one "{self.files[-1].path}"' if self.files else ""
        return f"{len(self.files):,} files read{last}"


JobProgress = TopicsProgress | FilesProgress


class Adopts(Source):
    """Declares that reading can go on where a job of another system has ended."""

    @abstractmethod
    def adopted(self, progress: JobProgress) -> Offset:
        """Returns the offset up to which a job has read. Raises AdoptionRefused if it has read something else, or if
        that has changed since.
        """


class AdoptedTables(ABC):
    """Declares the tables of a system that a job writes to and says itself how far, so that a statement can go on
    writing. A connector has it in its file ``adopted_tables``.
    """

    kind: ClassVar[str]
    """What messages call such a table."""
    example: ClassVar[str]
    """A statement that writes to one."""

    @abstractmethod
    def place(self, path: str) -> str:
        """Returns where the table of a path is; the path may be written as a URI."""

    @abstractmethod
    def is_at(self, place: str, path: str) -> bool:
        """Returns whether a place is that of a path."""

    @abstractmethod
    def of_sink(self, uri: str, values: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
        """Returns the place of the table that a sink writes to, and its options; None for a sink of another system."""

    @abstractmethod
    def of_table(self, options: Mapping[str, Any]) -> str | None:
        """Returns the place of a table with these options; None for one of another system, or without a place."""

    @abstractmethod
    def has_key(self, values: Mapping[str, Any], schema: Schema) -> bool:
        """Returns whether a sink with these options replaces rows with the same key."""

    @abstractmethod
    def last_batch(self, place: str, values: Mapping[str, Any], transactions: str) -> int | None:
        """Returns the last batch that was written under the name of some transactions (``txnAppId``). Raises
        TableMissing if there is no table.
        """


def _listed(offsets: Mapping[str, int]) -> str:
    return ", ".join(f"{p}: {offset}" for p, offset in sorted(offsets.items(), key=lambda i: int(i[0])))
