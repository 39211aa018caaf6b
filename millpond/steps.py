"""Measures the steps of a statement: how often each ran, rows, bytes and seconds. EXPLAIN ANALYZE prints it.

Whoever runs a statement gives its thread a record, and the code on the way names its steps. A step inside another is
counted in both. A thread without a record does the same work, and nothing is recorded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

T = TypeVar("T")
_current = threading.local()


@dataclass(slots=True)
class Step:
    """Sums up all runs of one step. ``rows`` and ``bytes`` are its output, if that was reported."""

    name: str
    depth: int
    times: int = 0
    rows: int | None = None
    bytes: int | None = None
    seconds: float = 0.0

    def tell(self, rows: int | None, size: int | None = None) -> None:
        """Adds output."""
        if rows is not None:
            self.rows = (self.rows or 0) + rows
        if size is not None:
            self.bytes = (self.bytes or 0) + size

    def tell_of(self, found: Any) -> None:
        """Adds rows of output, if they are a complete table."""
        if isinstance(found, pa.Table | pa.RecordBatch):
            self.tell(found.num_rows, found.nbytes)

    def as_json(self) -> dict[str, Any]:
        fields = {"step": self.name, "depth": self.depth, "times": self.times, "rows": self.rows}
        return {**fields, "bytes": self.bytes, "ms": round(self.seconds * 1000, 3)}

    def __str__(self) -> str:
        parts = [f"{self.times:,} times"] if self.times != 1 else []
        parts += [f"{self.rows:,} rows"] if self.rows is not None else []
        parts += [size_text(self.bytes)] if self.bytes is not None else []
        return f"{'  ' * self.depth}{self.name}: {', '.join([*parts, f'{self.seconds * 1000:,.3f} ms'])}"


class Steps:
    """Records one statement, in the order in which its steps were first run."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, ...], Step] = {}
        self._path: tuple[str, ...] = ()
        self.engine: str | None = None
        """Which engine has evaluated since this was reset: Spark, if both have."""

    def __iter__(self) -> Iterator[Step]:
        return iter(list(self._steps.values()))

    def __bool__(self) -> bool:
        return bool(self._steps)

    def begin(self, name: str) -> Step:
        self._path = (*self._path, name)
        found = self._steps.get(self._path)
        if found is None:
            found = self._steps[self._path] = Step(name, len(self._path) - 1)
        return found

    def end(self, step: Step, seconds: float) -> None:
        step.times += 1
        step.seconds += seconds
        self._path = self._path[:-1]


class _Nothing(Step):
    """Represents a step that nobody records."""

    def tell(self, rows: int | None, size: int | None = None) -> None:
        pass

    def tell_of(self, found: Any) -> None:
        pass


_NOTHING = _Nothing("", 0)


def size_text(size: int) -> str:
    """Formats a number of bytes for people."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size:,} B"


def current() -> Steps | None:
    """Returns the record of this thread, if it has one."""
    return getattr(_current, "steps", None)


@contextmanager
def recording(steps: Steps | None) -> Iterator[None]:
    """Records what this thread does inside; an outer record gets nothing meanwhile."""
    before, _current.steps = getattr(_current, "steps", None), steps
    try:
        yield
    finally:
        _current.steps = before


@contextmanager
def step(name: str) -> Iterator[Step]:
    """Records what is done inside as a step."""
    record: Steps | None = getattr(_current, "steps", None)
    if record is None:
        yield _NOTHING
        return
    found, began = record.begin(name), time.perf_counter()
    try:
        yield found
    finally:
        record.end(found, time.perf_counter() - began)


def run_by(engine: str) -> None:
    """Records which engine evaluates."""
    record: Steps | None = getattr(_current, "steps", None)
    if record is not None and record.engine != "spark":
        record.engine = engine


def timed(name: str, work: Callable[[], T]) -> T:
    """Returns the result of the work, and records it as a step, with its rows."""
    if getattr(_current, "steps", None) is None:
        return work()
    with step(name) as noted:
        found = work()
        noted.tell_of(found)
        return found


def each(name: str, parts: Iterable[T]) -> Iterator[T]:
    """Yields the parts, and records the time to get each of them as a step."""
    given = iter(parts)
    while True:
        with step(name) as noted:
            try:
                part = next(given)
            except StopIteration:
                return
            noted.tell_of(getattr(part, "rows", part))
        yield part
