"""The time of day, as SQL and whatever waits for a time see it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class Clock:
    """The machine's clock."""

    stands = False
    """Whether time passes only when somebody says so: Spark is then told the time."""

    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.now(UTC)


class ManualClock(Clock):
    """A clock that stands until it is moved."""

    stands = True

    def __init__(self, at: datetime):
        self._at = at.astimezone(UTC)

    def now(self) -> datetime:
        return self._at

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._at += timedelta(seconds=seconds)

    def set(self, at: datetime) -> None:
        """Lets it be that time, which is not before the time that it is."""
        self.advance((at - self._at).total_seconds())
