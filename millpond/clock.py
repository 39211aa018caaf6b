"""Provides the time of day, for SQL and for everything that waits for a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class Clock:
    """Reads the machine's clock."""

    stands = False
    """Whether time passes only on request: Spark then gets this time."""

    def now(self) -> datetime:
        """Returns the time, in UTC."""
        return datetime.now(UTC)

    def seconds(self) -> float:
        """Returns the time, in seconds since 1970."""
        return self.now().timestamp()


class ManualClock(Clock):
    """Represents a clock that stands still until it is moved."""

    stands = True

    def __init__(self, at: datetime):
        self._at = at.astimezone(UTC)

    def now(self) -> datetime:
        return self._at

    def advance(self, seconds: float) -> None:
        """Moves the clock forward."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._at += timedelta(seconds=seconds)

    def set(self, at: datetime) -> None:
        """Sets the time, which must not be before the current one."""
        self.advance((at - self._at).total_seconds())
