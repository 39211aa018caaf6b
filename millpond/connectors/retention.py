"""Declares that a source removes old rows while others are read: an ability (see ``abilities``)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from millpond.changes import Offset
from millpond.connectors import abilities
from millpond.connectors.source import Source


class Hold(Protocol):
    """Represents rows that are kept while they are read."""

    def close(self) -> None:
        """Lets them go."""


class Forgets(Source):
    """Declares that old rows are removed while others are read."""

    @abstractmethod
    def first(self) -> Offset:
        """Returns the offset before the first row that is kept."""

    @abstractmethod
    def hold(self, start: Offset | None) -> Hold | None:
        """Keeps the rows after an offset that are still there, until it is closed; None if none are removed."""

    @abstractmethod
    def gap(self, start: Offset | None, end: Offset) -> range:
        """Returns the numbers of the rows between two offsets that were removed."""


def lost(source: Source, start: Offset | None, end: Offset) -> int:
    """Returns how many rows between two offsets were removed."""
    return len(source.gap(start, end)) if isinstance(source, Forgets) else abilities.lost(source, start, end)


def gap(source: Source, start: Offset | None, end: Offset) -> range:
    """Returns the numbers of the rows between two offsets that were removed, if a source knows them."""
    return source.gap(start, end) if isinstance(source, Forgets) else range(0)


def hold(source: Source, start: Offset | None) -> Hold | None:
    """Keeps the rows after an offset, if a source removes some."""
    return source.hold(start) if isinstance(source, Forgets) else None
