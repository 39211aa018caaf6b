"""Moves the captured tables of a database together, so that a transaction there is one commit here.

All tables of a database are in one log. In each step those that have caught up go to one place of it, in one commit
with all their positions: what queries read is what the database contained at that place. A table that is behind catches
up by itself, and then joins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from millpond import faults
from millpond.changes import Changes, Position
from millpond.connectors.cdc.log import Place
from millpond.errors import ConnectionLost, TimedOut
from millpond.store.store import Store
from millpond.tables.base import Database

T = TypeVar("T")
_PATIENCE = 5.0
"""Seconds to wait for a step, when a table leaves."""


@dataclass(frozen=True, slots=True)
class Part:
    """Contains what one table gets in a step."""

    table: str
    changes: Changes
    position: Position


class Member(Protocol):
    """Represents a captured table. It is used by one thread at a time: that of the step."""

    def horizon(self) -> Place:
        """Returns a place up to which its changes can be read at once."""

    def part(self, place: Place) -> Part | None:
        """Reads its changes up to a place; returns None if there are none."""


class CaptureGroup:
    """Moves the tables that follow one log and are stored in one place."""

    def __init__(self, store: Store):
        self._store = store
        self._turn = threading.RLock()
        """Held for a step."""
        self._members: dict[Member, int] = {}
        """The tables that have caught up, each with the number of changes it got in steps that others began."""
        self._reached: Place = ()

    def advance(self, member: Member) -> int:
        """Moves all tables that have caught up to the end of the log, and this one, which joins them. Returns how many
        changes it got since the last call.
        """
        rows = 0
        while member not in self._members and (place := member.horizon()) < self._reached:
            # The others need not wait for it.
            if (part := member.part(place)) is not None:
                self._commit([part])
                rows += len(part.changes)
        with self._turn:
            self._members.setdefault(member, 0)
            while self._step(member):
                pass
            rows += self._members.get(member, 0)
            if member in self._members:
                self._members[member] = 0
        return rows

    def _step(self, caller: Member) -> bool:
        """Brings all to one place; returns whether there was anything new."""
        members = list(self._members)
        horizons = [place for m in members if (place := self._of(m, caller, m.horizon)) is not None]
        if len(horizons) < len(members):
            return True  # one has left: again, without it
        place = min(horizons)
        parts: dict[Member, Part] = {}
        for member in members:

            def read(member: Member = member) -> tuple[Part | None]:
                return (member.part(place),)

            found = self._of(member, caller, read)
            if found is None:
                return True
            if found[0] is not None:
                parts[member] = found[0]
        if any(member not in self._members for member in members):
            return True
        if parts:
            self._commit(list(parts.values()))
        self._reached = max(self._reached, place)
        for member, part in parts.items():
            if member in self._members:
                self._members[member] += len(part.changes)
        return bool(parts)

    def _of(self, member: Member, caller: Member, work: Callable[[], T]) -> T | None:
        """Returns what a table answers; None if it cannot go on, and the others go on without it. While the database is
        away none goes on.
        """
        try:
            return work()
        except Exception as error:
            if isinstance(error, ConnectionLost | TimedOut) and member in self._members:
                raise
            self._members.pop(member, None)
            if member is caller:
                raise
            return None  # its own follower finds the error, and reports it

    def _commit(self, parts: list[Part]) -> None:
        faults.reach("capture: read")
        changes = {part.table: part.changes for part in parts}
        self._store.commit(changes, others=[part.position for part in parts])
        faults.reach("capture: applied")

    def leave(self, member: Member) -> None:
        """Ends its part, after the step that is running."""
        self._members.pop(member, None)
        if self._turn.acquire(timeout=_PATIENCE):
            self._turn.release()


class CaptureGroups:
    """Contains the groups of an app."""

    def __init__(self, store: Store):
        self._store = store
        self._groups: dict[tuple[str, Database | None], CaptureGroup] = {}
        self._lock = threading.Lock()

    def of(self, line: str, table: str) -> CaptureGroup:
        """Returns the group of a table that follows a log. One commit changes what is stored in one place."""
        key = (line, self._store.backend(table).database)
        with self._lock:
            if key not in self._groups:
                self._groups[key] = CaptureGroup(self._store)
            return self._groups[key]
