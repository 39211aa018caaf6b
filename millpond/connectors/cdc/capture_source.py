"""Defines what the follower of a changelog needs of its source, whatever the log is in.

Offsets of a log have the form ``{"log": …}``; what is read between two of them has the columns of ``log_schema``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from millpond.changes import Offset
from millpond.connectors.abilities import Captures, Drifts, Follows
from millpond.connectors.cdc.log_positions import LogPositions
from millpond.errors import Error
from millpond.types import Schema


class Capturing(Drifts, Follows, Captures):
    """Declares a source with a changelog."""

    @property
    @abstractmethod
    def polls_instead(self) -> bool:
        """Returns whether it is polled while the log cannot be followed."""

    @property
    @abstractmethod
    def loads_first(self) -> bool:
        """Returns whether the rows before the first position are read."""

    @property
    @abstractmethod
    def origin(self) -> dict[str, str | None]:
        """Returns what envelopes contain about their origin."""

    @property
    def log_positions(self) -> LogPositions | None:
        """Returns the positions of its log, if that has the changes of other tables too; None if it does not."""
        return None

    @abstractmethod
    def claimed(self, owner: str) -> Self:
        """Returns the same source for one follower of the changes. The name identifies what is stored for it."""

    @abstractmethod
    def forget(self, owner: str) -> None:
        """Removes what is stored for a follower that was dropped."""

    @abstractmethod
    def begin_capture(self) -> Offset:
        """Returns a position in the log; ``splits(None, position)`` reads the rows before it. Raises CaptureRefused."""

    @abstractmethod
    def begun(self) -> None:
        """Records that the rows before the first position were read."""

    @abstractmethod
    def fall_back(self, why: Error) -> None:
        """Stops following the log, until ``begin_capture``."""

    @abstractmethod
    def release(self) -> None:
        """Removes what is stored for this follower, which was dropped."""

    @abstractmethod
    def take_columns(self, columns: Schema) -> None:
        """Replaces the columns."""
