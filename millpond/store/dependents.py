"""Adds to a commit what other tables get with it: views that change in the commit that changes their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from millpond.changes import Changes


class Dependents(Protocol):
    """Finds the changes of tables that change with others. The caller holds ``Store.writing``."""

    def reads(self, table: str) -> bool:
        """Returns whether changes of the table, by its name in lower case, change others."""

    def changes(self, changes: Mapping[str, Changes]) -> dict[str, Changes]:
        """Returns what others get with these changes, by name in lower case. An error of one refuses the commit."""

    def forget(self) -> None:
        """Records that the last changes were not committed."""

    def settled(self) -> None:
        """Records that the last changes were committed."""


class NoDependents:
    """Is in the place of views until there are some."""

    def reads(self, table: str) -> bool:
        return False

    def changes(self, changes: Mapping[str, Changes]) -> dict[str, Changes]:
        return {}

    def forget(self) -> None:
        return None

    def settled(self) -> None:
        return None


class Together:
    """Surrounds a commit that others change with; until it is ``settled`` they forget it at the end."""

    def __init__(self, dependents: Dependents):
        self._dependents = dependents
        self._asked = self.settled = False

    def __enter__(self) -> Self:
        return self

    def changes(self, changes: Mapping[str, Changes]) -> dict[str, Changes]:
        """Returns the changes of others."""
        if not any(self._dependents.reads(name.lower()) for name in changes):
            return {}
        self._asked = True
        return self._dependents.changes(changes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._asked:
            (self._dependents.settled if self.settled else self._dependents.forget)()
