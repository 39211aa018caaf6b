"""Undoes a statement that fails: what it has done so far is taken back, and the app is as it was."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self, TypeVar

log = logging.getLogger("millpond")
K = TypeVar("K")
V = TypeVar("V")


class Undo:
    """Takes the steps of a statement back, the last one first.

    A context manager: it takes them back if the block raises. A statement that starts later hands it on to who starts
    it, who calls ``take_back`` if that fails.
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def on_failure(self, undo: Callable[[], object]) -> None:
        """Is called before a step is made; ``undo`` must do with a step that was half made."""
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
        """Takes all steps back. One that cannot be is logged, and does not keep the others."""
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
    """Makes one of several steps; what it fails on is logged, and the next one is made all the same."""
    try:
        step()
    except Exception:
        log.warning("something that is not needed any more could not be let go", exc_info=True)
