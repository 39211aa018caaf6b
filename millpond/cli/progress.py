"""Shows the start of an app on standard error: bars on a terminal, otherwise a line from time to time."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from millpond.cli.error_report import say

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from millpond.loading.progress import Progress

_MB = 1 << 20
EVERY = 2.0
"""Seconds between two lines about one load."""


class Loading:
    """Follows the loads of an app; ``report`` is called for each piece that a table has loaded."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._said: dict[str, float] = {}
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._plain = not sys.stderr.isatty()

    def report(self, progress: Progress) -> None:
        now = time.monotonic()
        began = self._began.setdefault(progress.table, now)
        if progress.finished:
            self.close()
            seconds = now - self._began.pop(progress.table)
            rate = f" in {seconds:.1f} s, {progress.rows / seconds:,.0f}/s" if seconds >= 0.1 else ""
            say(f"loaded {progress.table}: {progress.rows:,} rows{rate}")
        elif not self._plain:
            self._bar(progress)
        elif now - self._said.get(progress.table, began) >= EVERY:
            self._said[progress.table] = now
            rate = f", {progress.rows / (now - began):,.0f}/s" if now - began >= 0.1 else ""
            say(f"loading {progress.table}: {_rows(progress)}{_share(progress)}{rate}")

    def started(self) -> None:
        """Switches to lines without bars: from here on others write too."""
        self.close()
        self._plain = True

    def status(self, text: str) -> None:
        self.close()
        say(text)

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            self._tasks = {}

    def _bar(self, progress: Progress) -> None:
        if self._bars is None:
            self._bars = _bars()
            self._bars.start()
        if progress.table not in self._tasks:
            self._tasks[progress.table] = self._bars.add_task(progress.table, total=None, rows="")
        seconds = time.monotonic() - self._began[progress.table]
        rate = f", {progress.rows / seconds:,.0f}/s" if seconds > 0 else ""
        self._bars.update(
            self._tasks[progress.table],
            total=progress.total if progress.bytes else progress.of,
            completed=progress.bytes or progress.rows,
            rows=_rows(progress) + rate,
        )


def _bars() -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("loading {task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rows]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def _rows(progress: Progress) -> str:
    of = f" of {progress.of:,}" if progress.of is not None else ""
    many = progress.of_files is not None and progress.of_files > 1
    files = f", {progress.files:,} of {progress.of_files:,} files" if many else ""
    return f"{progress.rows:,}{of} rows{files}{_bytes(progress)}"


def _bytes(progress: Progress) -> str:
    if not progress.bytes or (progress.total or 0) < _MB:
        return ""
    of = f" of {progress.total / _MB:,.0f}" if progress.total else ""
    return f", {progress.bytes / _MB:,.0f}{of} MB"


def _share(progress: Progress) -> str:
    if progress.total and progress.bytes:
        return f", {100 * progress.bytes // progress.total} %"
    return f", {100 * min(progress.rows, progress.of) // progress.of} %" if progress.of else ""
