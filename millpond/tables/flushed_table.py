"""Defines tables whose rows are in a base outside, with the newest changes on top.

The journal has a change until a *flush* has written it to the base: many commits become one there. The base records the
number of the last commit that it contains, in the same step, so that a restart applies what came after it and nothing
twice.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from millpond.changes import Changes, Position
from millpond.tables.base import Backend


@dataclass(frozen=True, slots=True)
class Pending:
    """Describes the changes that the base does not have: how many rows and bytes, and when the first of them came, in
    seconds of ``time.monotonic``.
    """

    rows: int
    bytes: int
    since: float | None


class FlushedTable(Backend):
    """Represents a table with a base. The app's journal makes its changes durable until they are flushed.

    ``freeze`` and ``flush`` are called by one thread at a time, while others read and apply.
    """

    flushed_by: ClassVar[str]
    """Says in words who writes to the base, for EXPLAIN."""
    what: str
    """Names the table in messages."""
    anchor: Mapping[str, Any]
    """What is saved with the options of the table, so that ``open`` finds the same base and no other one; it gets it as
    the option ``anchor``.
    """
    flush_interval: float
    """Seconds that changes wait for others."""
    flush_size: int
    """Bytes of changes that are flushed without waiting."""
    flush_error: str | None = None
    """Why the last flush failed, if it did."""

    base_stays: bool = True
    """Whether the base stays when the table is dropped."""

    constraints: Mapping[str, str] = MappingProxyType({})
    """Conditions in SQL, by their names, that the base refuses rows for, whoever writes them."""
    check_rows: Callable[[Changes, str], None] | None = None
    """Raises InvalidRecord for rows that break a constraint, of the table that is named so. Whoever opens a table with
    constraints sets it: ``check`` calls it, so that nothing is committed that the base then refuses.
    """

    @classmethod
    @abstractmethod
    def remove_left(cls, name: str, values: Mapping[str, Any], home: Path) -> None:
        """Removes what a DROP that was killed has left of a table, without opening it."""

    @abstractmethod
    def flushed(self, state: str) -> int | None:
        """Returns the last commit of that state directory that the base contains; None if it contains none."""

    @property
    @abstractmethod
    def pending(self) -> Pending: ...

    @abstractmethod
    def restored(self, commit: int) -> None:
        """Records which is the last commit of what ``restore`` was given."""

    @abstractmethod
    def freeze(self, commit: int, positions: Sequence[Position] = ()) -> int | None:
        """Sets apart the changes up to the newest commit, for ``flush``; changes that a failed flush has left stay as
        they are. Returns the last commit of what is set apart, which is ``commit`` if they came without numbers; None
        if there is nothing. ``positions`` are those that the changes reach; the base may note them for people.
        """

    @abstractmethod
    def flush(self, state: str) -> None:
        """Writes what is set apart to the base, all or nothing. If the base contains it already, nothing changes."""

    @abstractmethod
    def wait_for_room(self, size: int) -> None:
        """Waits until changes of that size can be committed, if those that are not flushed take several times
        ``flush_size``. Raises an error that says to try again if the last flush failed, or takes too long.
        """

    @abstractmethod
    def flush_ended(self, error: str | None) -> None:
        """Records why a flush failed, None if it did not, and wakes those who wait for room."""
