"""Tracks how far the load of a table is, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from millpond.query.stats import Health
from millpond.steps import Steps


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts the progress of a load: rows, bytes and files, each with the total if the source knows it."""

    table: str
    rows: int
    bytes: int
    total: int | None
    of: int | None = None
    finished: bool = False
    files: int = 0
    of_files: int | None = None


Report = Callable[[Progress], None]
"""Receives the progress of a load."""


@dataclass(frozen=True, slots=True)
class Load:
    """Tracks the load of a table: the kind of its source, how far it is, and how it ended.

    ``of`` is how many rows there are, ``of_files`` how many files, ``share`` the part of the bytes that was read, if
    the source knows.
    """

    source: str
    what: str
    rows: int = 0
    of: int | None = None
    share: float | None = None
    bytes: int = 0
    files: int = 0
    of_files: int | None = None
    began: float | None = None
    ended: float | None = None
    loaded_at: float | None = None
    error: str | None = None
    follows: bool = False
    """Whether the table continues with what is new."""
    steps: Steps = field(default_factory=Steps, compare=False, repr=False)
    """What the steps of its load have taken since the app was started."""

    @property
    def rate(self) -> float:
        """Returns rows per second."""
        seconds = (self.ended or time.time()) - self.began if self.began is not None else 0.0
        return round(self.rows / seconds, 1) if seconds > 0 else 0.0

    @property
    def percent(self) -> int | None:
        part = self.rows / self.of if self.of else self.share
        return None if part is None else int(100 * min(part, 1.0))

    def far(self) -> str:
        """Returns the progress, in words."""
        of = f" of {self.of:,}" if self.of is not None else ""
        many = self.of_files is not None and self.of_files > 1
        files = f", {self.files:,} of {self.of_files:,} files" if many else ""
        percent = f", {self.percent} %" if self.percent is not None else ""
        return f"{self.rows:,}{of} rows{files}{percent}, {self.rate:,.0f}/s"

    def health(self) -> Health:
        if self.error is not None:
            return Health("stale", self.error)
        if self.loaded_at is None:
            return Health("loading", f"{self.far()}, from {self.what}")
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.loaded_at))
        if self.follows:
            return Health("healthy", f"it follows {self.what}, last change {when}")
        return Health("static", f"read once from {self.what}, complete since {when}")
