"""Handles Ctrl-C and SIGTERM: both request the app to stop, a second one ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class Stopping:
    """Handles both signals while it is entered. Until ``gently`` a signal raises KeyboardInterrupt in the main thread;
    after it, it only sets ``asked``, so that work can be finished.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._gentle = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]

    def gently(self) -> None:
        """Switches to finishing work on a signal. Sets the handlers again, should something have replaced them."""
        self._gentle = True
        for number in self._before:
            signal.signal(number, self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            os._exit(128 + number)
        self.asked.set()
        if not self._gentle:
            raise KeyboardInterrupt
