"""Undoes a statement that fails: reverts what it has done so far, so that the app is as before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self, TypeVar

log = logging.getLogger("millpond")
K = TypeVar("K")
V = TypeVar("V")


class Undo:
    """Reverts the steps of a statement, the last one first.

    It is a context manager that reverts them if the block raises. A statement that starts later passes it on to its
    starter, which calls ``take_back`` if the start fails.
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def on_failure(self, undo: Callable[[], object]) -> None:
        """Registers ``undo`` before a step is made; it must also handle a step that was half made."""
        self._steps.append(undo)

    def put(self, known: dict[K, V], fresh: Mapping[K, V]) -> None:
        """Updates a dictionary."""
        before = {key: known[key] for key in fresh if key in known}

        def put_back() -> None:
            for key in fresh:
                known.pop(key, None)
            known.update(before)

        self.on_failure(put_back)
        known.update(fresh)

    def take_back(self) -> None:
        """Reverts all steps. A step that cannot be reverted is logged, and the others are still reverted."""
        while self._steps:
            safely(self._steps.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.take_back()


def safely(step: Callable[[], object]) -> None:
    """Runs one of several steps; an error is logged, and the next step still runs."""
    try:
        step()
    except Exception:
        log.warning("something that is not needed any more could not be let go", exc_info=True)
