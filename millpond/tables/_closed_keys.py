"""Replaces the keys of a table that can no longer be read."""

from __future__ import annotations

from copy import copy
from typing import Any, NoReturn

from millpond.errors import Error


class ClosedKeys(dict[Any, int]):
    """Represents the key index of a table that can no longer be read."""

    def __init__(self, error: Error):
        super().__init__()
        self._error = error

    def get(self, key: Any, default: Any = None) -> NoReturn:
        raise copy(self._error)
