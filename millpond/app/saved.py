"""Contains the statements that a state directory stores."""

from __future__ import annotations

from millpond.store.catalog import Saved, SavedQuery, SavedRelation


class SavedStatements:
    """Contains saved statements by their ids: kind and name, in lower case."""

    def __init__(self) -> None:
        self.entries: dict[str, Saved] = {}
        self.unclaimed: dict[str, Saved] = {}
        """Statements of a state directory that the app's file has not named yet."""

    def add(self, entry: Saved) -> None:
        self.entries[entry.id] = entry

    def restore(self, entry: Saved) -> None:
        """Adds a statement from the state directory."""
        self.add(entry)
        self.unclaimed[entry.id] = entry

    def get(self, name: str) -> Saved | None:
        """Returns the entry of an id, whatever its case."""
        return self.entries.get(name.lower())

    def relation(self, name: str) -> SavedRelation | None:
        """Returns the entry of a stream, table or view, by its id."""
        found = self.get(name)
        return found if isinstance(found, SavedRelation) else None

    def query(self, name: str) -> SavedQuery | None:
        """Returns the entry of a running statement, by its name."""
        found = self.get(f"query:{name}")
        return found if isinstance(found, SavedQuery) else None

    def forget(self, name: str) -> None:
        self.entries.pop(name.lower(), None)
        self.unclaimed.pop(name.lower(), None)
