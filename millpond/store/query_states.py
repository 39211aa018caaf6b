"""Stores whether queries are paused, stopped or dropped, so that this survives a restart."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.journal.catalog import Entry
from millpond.journal.journal import Journal

QUERY_STATE = "held"
"""The kind of journal entries that store the state of a query."""
DROPPED = "dropped"


class QueryStates:
    """Stores the states of queries that were paused, stopped or dropped, by name."""

    def __init__(self, journal: Journal):
        self._journal = journal
        self._states: dict[str, str] = {}

    def restore(self, name: str, state: str) -> None:
        self._states[name] = state

    def get(self, name: str) -> str | None:
        return self._states.get(name)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(list(self._states.items()))

    def __contains__(self, name: str) -> bool:
        return name in self._states

    def set(self, name: str, state: str | None) -> None:
        """Stores a state; None means that the query runs."""
        if state == self._states.get(name):
            return
        if state is None:
            self._journal.drop_entry(QUERY_STATE, name)
        else:
            self._journal.put_entry(entry(name, state))
        self.note(name, state)

    def note(self, name: str, state: str | None) -> None:
        """Records what the journal now contains."""
        if state is None:
            self._states.pop(name, None)
        else:
            self._states[name] = state


def entry(name: str, state: str) -> Entry:
    return Entry(name, QUERY_STATE, "", {"state": state})
