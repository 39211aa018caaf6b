"""Compares how far the tables of a database can be read in its log."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from millpond.changes import Offset
from millpond.connectors.cdc.log import CHANGES, Log, LogPosition


class LogPositions:
    """Returns the positions of one table in the log of its database. ``line`` says which log it is: positions of tables
    with an equal one can be compared. ``turn`` is held while the log is used.
    """

    def __init__(self, log: Log, line: str, turn: AbstractContextManager[Any]):
        self.line = line
        self._log = log
        self._turn = turn

    def horizon(self, start: Offset) -> LogPosition:
        """Returns a position up to which the changes after an offset can be read at once."""
        with self._turn:
            return self._log.horizon(start["log"], CHANGES)

    def until(self, start: Offset, position: LogPosition) -> Offset:
        """Returns the last offset with a change that is not after a position that ``horizon`` has reached; ``start`` if
        there is none.
        """
        with self._turn:
            end = self._log.until(start["log"], position)
        return start if dict(end) == dict(start["log"]) else {"log": dict(end)}
