"""Defines how far a job of another system has read, so that a statement can go on from there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from millpond.changes import Offset
from millpond.connectors.source import Source


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


def _listed(offsets: Mapping[str, int]) -> str:
    return ", ".join(f"{p}: {offset}" for p, offset in sorted(offsets.items(), key=lambda i: int(i[0])))
