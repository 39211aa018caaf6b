"""Moves the captured tables of a database together, so that a transaction there is one commit here.

All tables of a database are in one log. In each step those that have caught up go to one position of it, in one commit
with all their positions: what queries read is what the database contained at that position. A table that is behind
catches up by itself, and then joins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar
from weakref import WeakSet

from millpond import faults
from millpond.changes import Changes, Position
from millpond.connectors.cdc.log import LogPosition
from millpond.errors import Closed, Conflict, ConnectionLost, TimedOut
from millpond.store.store import Store
from millpond.tables.base import Database

T = TypeVar("T")
_PATIENCE = 5.0
"""Seconds to wait for a step, when a table leaves."""
_AWAY = 30.0
"""Seconds that others wait for a table that has lost its connection, while they have theirs."""


@dataclass(frozen=True, slots=True)
class Part:
    """Contains what one table gets in a step."""

    table: str
    changes: Changes
    position: Position


class Member(Protocol):
    """Represents a captured table. It is used by one thread at a time: that of the step."""

    def horizon(self) -> LogPosition:
        """Returns a position up to which its changes can be read at once."""

    def part(self, position: LogPosition) -> Part | None:
        """Reads its changes up to a position; returns None if there are none."""


class CaptureGroup:
    """Moves the tables that follow one log and are stored in one place."""

    def __init__(self, store: Store):
        self._store = store
        self._turn = threading.Lock()
        """Held for a step."""
        self._next = threading.Lock()
        """Held by the thread that gets the next turn, so that one that makes step after step does not keep it."""
        self._members: dict[Member, int] = {}
        """The tables that have caught up, each with the number of changes it got in steps that others began."""
        self._gone: WeakSet[Member] = WeakSet()
        """Tables that do not come back."""
        self._lost: dict[Member, float] = {}
        """Since when tables have had no connection while others had one."""
        self._reached: LogPosition = ()

    def advance(self, member: Member) -> int:
        """Moves all tables that have caught up to the end of the log, and this one, which joins them. Returns how many
        changes it got since the last call.
        """
        rows = self._catch_up(member)
        more = True
        while more:
            with self._next:
                self._turn.acquire()
            try:
                if member in self._gone:
                    raise Closed("the table is not followed any more")
                self._members.setdefault(member, 0)
                try:
                    more = self._step(member)
                finally:
                    rows += self._members.get(member, 0)
                    if member in self._members:
                        self._members[member] = 0
                    if not self._members:
                        self._reached = ()
            finally:
                self._turn.release()
        return rows

    def _catch_up(self, member: Member) -> int:
        """Brings a table that is behind to where the others are, which need not wait for it."""
        rows = 0
        while member not in self._members and (position := member.horizon()) < self._reached:
            if (part := member.part(position)) is None:
                break  # it can read nothing more by now
            self._commit([part])
            rows += len(part.changes)
        return rows

    def _step(self, caller: Member) -> bool:
        """Brings all to one position; returns whether there was anything new."""
        members = list(self._members)
        horizons = [position for m in members if (position := self._of(m, caller, m.horizon)) is not None]
        if len(horizons) < len(members):
            return True  # one has left: again, without it
        position = min(horizons)
        parts: dict[Member, Part] = {}
        for member in members:

            def read(member: Member = member) -> tuple[Part | None]:
                return (member.part(position),)

            found = self._of(member, caller, read)
            if found is None:
                return True
            if found[0] is not None:
                parts[member] = found[0]
        if any(member not in self._members for member in members):
            return True
        if parts:
            self._commit_all(parts, caller)
        self._reached = max(self._reached, position)
        for member, part in parts.items():
            if member in self._members:
                self._members[member] += len(part.changes)
        return bool(parts)

    def _of(self, member: Member, caller: Member, work: Callable[[], T]) -> T | None:
        """Returns what a table answers; None if it cannot go on, and the others go on without it. While the database is
        away none goes on.
        """
        try:
            found = work()
        except Exception as error:
            if isinstance(error, ConnectionLost | TimedOut) and self._waits_for(member, caller):
                raise
            self._drop(member)
            if member is caller:
                raise
            return None  # its own follower finds the error, and reports it
        self._lost.pop(member, None)
        return found

    def _waits_for(self, member: Member, caller: Member) -> bool:
        """Returns whether the others wait for a table that has lost its connection: not for long if they have one."""
        if member not in self._members:
            return False
        if member is caller:
            return True
        caller.horizon()  # the database is away for it too: it raises
        since = self._lost.setdefault(member, time.monotonic())
        return time.monotonic() - since < _AWAY

    def _drop(self, member: Member) -> None:
        self._members.pop(member, None)
        self._lost.pop(member, None)

    def _commit_all(self, parts: dict[Member, Part], caller: Member) -> None:
        """Commits the parts together. If one of the tables cannot take its own, the others go on without it."""
        try:
            self._commit(list(parts.values()))
            return
        except (ConnectionLost, TimedOut, Closed):
            raise
        except Exception as error:
            failed = error
        for member in list(parts) if len(parts) > 1 else ():
            try:
                self._commit([part for m, part in parts.items() if m is not member])
            except Exception:
                continue
            del parts[member]
            self._drop(member)
            if member is caller:
                raise failed
            return
        if len(parts) == 1:
            self._drop(next(iter(parts)))
        raise failed

    def _commit(self, parts: list[Part]) -> None:
        faults.reach("capture: read")
        changes = {part.table: part.changes for part in parts}
        if not self._store.commit(changes, others=[part.position for part in parts]):
            raise Conflict("captured tables have moved meanwhile")
        faults.reach("capture: applied")

    def leave(self, member: Member, *, for_good: bool = False) -> None:
        """Ends its part, after the step that is running."""
        if for_good:
            self._gone.add(member)
        self._drop(member)
        if self._next.acquire(timeout=_PATIENCE):
            try:
                if self._turn.acquire(timeout=_PATIENCE):
                    if not self._members:
                        self._reached = ()
                    self._turn.release()
            finally:
                self._next.release()


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
