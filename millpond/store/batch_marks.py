"""Knows which batches of executors the base of a table has, by two marks in the journal.

| step                                                         | a kill after it                                    |
|--------------------------------------------------------------|----------------------------------------------------|
| the journal has the intent: number of the batch, position    | the base has no such number: the batch comes again |
| the base has the rows and the number, in one commit          | the base has the number: the position follows      |
| the journal has the position, and that the batch is done     |                                                    |
"""

from __future__ import annotations

from millpond import faults
from millpond.changes import Position
from millpond.connectors.divided_table import DividedTable
from millpond.errors import StateForeign
from millpond.journal.journal import Journal


class BatchMarks:
    """Represents the marks of one table; the caller holds up other commits."""

    def __init__(self, table: DividedTable, journal: Journal, state: str):
        self._table, self._journal, self._state = table, journal, state
        self._intended, self._done = f"{table.own}$intended", f"{table.own}$done"

    @property
    def _number(self) -> int:
        """Returns the number of the last batch that was intended; -1 if there is none."""
        intent = self._journal.position(self._intended)
        return -1 if intent is None else intent.batch // 2

    @property
    def _finished(self) -> int:
        done = self._journal.position(self._done)
        return -1 if done is None else done.batch

    def intend(self, position: Position) -> int:
        """Stores that a batch is about to be written; returns its number."""
        number = self._number + 1
        self._journal.commit(
            {}, Position(self._intended, "", 2 * number, {"of": {"position": position.parts}})
        )
        self._journal.sync()
        faults.reach("executors: intended")
        return number

    def finish(self, number: int, position: Position | None) -> None:
        """Stores the position of a batch that the base has."""
        others = [] if position is None else [position]
        self._journal.commit({}, Position(self._done, "", number), others=others)
        faults.reach("executors: noted")

    @property
    def open(self) -> bool:
        """Returns whether the journal does not know if the base has the last batch."""
        return self._number > self._finished

    def settle(self) -> None:
        """Stores the position of the last batch if the base has it and the journal does not know."""
        if not self.open or self._table.published(self._state) != self._number:
            return
        position = self._intent
        known = None if position is None else self._journal.position(position.pipeline)
        repeated = position is not None and known is not None and known.covers(position)
        self.finish(self._number, None if repeated else position)

    @property
    def _intent(self) -> Position | None:
        """Returns the position after the last batch that was intended, if its pipeline is there."""
        intent = self._journal.position(self._intended)
        parts = None if intent is None else intent.offsets["of"].get("position")
        return None if parts is None else Position(*parts)

    def leave(self, pipeline: str) -> None:
        """Forgets the position of the last batch if it is that of a pipeline that is dropped."""
        position = self._intent
        if position is not None and position.pipeline == pipeline:
            self._journal.commit({}, Position(self._intended, "", 2 * self._number + 1, {"of": {}}))

    def check(self) -> None:
        """Raises StateForeign if one of base and journal is older than the other."""
        found = self._table.published(self._state)
        there = -1 if found is None else found
        if there > self._number:
            raise StateForeign(
                f"{self._table.what} has batch {there} of this state directory, which has intended {self._number}: "
                "the directory is older than the table",
                hint="use the newest state directory; a new one goes on from the rows of the table",
            )
        if there < self._finished:
            raise StateForeign(
                f"{self._table.what} has lost batches of this state directory: it is older than the directory",
                hint="bring it back as it was, or begin with a new state directory",
            )
