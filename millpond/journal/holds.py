"""Keeps rows of a stream that a batch reads just now: they are removed when it is done.

Batches are read in the process that removes rows. Another process that reads them gets an error and tries again.
"""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path

removing = threading.Lock()
"""Held while rows are removed, and while a hold is taken: a hold sees the rows from before or from after."""

_holds: dict[tuple[str, str], weakref.WeakSet[Hold]] = {}


class Hold:
    """Keeps the rows of a stream from a number on, until it is closed or forgotten."""

    def __init__(self, path: str | os.PathLike[str], stream: str, first: int):
        self.first = first
        self._key = _key(path, stream)
        with removing:
            _holds.setdefault(self._key, weakref.WeakSet()).add(self)

    def close(self) -> None:
        with removing:
            _holds.get(self._key, weakref.WeakSet()).discard(self)


def lowest_held(path: str | os.PathLike[str], stream: str, before: int) -> int:
    """Returns the first held row, at most ``before``. Called with ``removing`` held."""
    return min((hold.first for hold in _holds.get(_key(path, stream), ())), default=before)


def _key(path: str | os.PathLike[str], stream: str) -> tuple[str, str]:
    return str(Path(path).absolute()), stream.lower()
