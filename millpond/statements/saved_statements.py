"""Contains the statements that a state directory stores."""

from __future__ import annotations

from millpond.journal.catalog import Entry
from millpond.journal.journal import Journal
from millpond.journal.revision import Revision
from millpond.sql.blocks import grouped
from millpond.sql.identity import identity
from millpond.sql.parse import parse
from millpond.sql.statements import Statement
from millpond.sql.variable_values import fingerprint_of, has_values, have_values
from millpond.store.catalog import Saved, SavedQuery, SavedRelation

VALUES = "values"
"""The kind of the journal entry with the fingerprint of all statements."""


class SavedStatements:
    """Contains saved statements by their ids: kind and name, in lower case."""

    def __init__(self) -> None:
        self.entries: dict[str, Saved] = {}
        self.unclaimed: dict[str, Saved] = {}
        """Statements of a state directory that the app's file has not named yet."""
        self.named: list[str] = []
        """The ids of those that it has named, in this run."""
        self.fingerprint: str | None = None
        """What tells the values of the variables in all of them apart from others."""
        self.hidden: dict[str, Saved] = {}
        """Statements that an upgrade drops when the file has run: until then they are stored, and nothing sees them."""

    def add(self, entry: Saved) -> None:
        self.entries[entry.id] = entry

    def restore(self, entry: Saved) -> None:
        """Adds a statement from the state directory."""
        self.add(entry)
        self.unclaimed[entry.id] = entry

    def renew(self, entry: Saved, statement: Statement, journal: Journal) -> None:
        """Replaces the text of a saved statement by another one, which means the same."""
        entry.text, entry.identity = statement.text, identity(statement)
        entry.replaced = ()
        if isinstance(entry, SavedRelation):
            entry.changed = False
            entry.fingerprint = fingerprint_of(statement)
        journal.put_entry(entry.entry())

    def mark_file(self, journal: Journal) -> None:
        """Marks those that the file has named as statements of the file."""
        marked = [e for name in self.named if (e := self.entries.get(name)) is not None and not e.of_file]
        for entry in marked:
            entry.of_file = True
        if marked:
            journal.revise(Revision([e.entry() for e in marked]))
        self.named = []

    def compare_values(self, journal: Journal | None) -> None:
        """Finds out at once whether the variables of all statements have the values that they had. Else each is
        compared when it is asked for; with a ``journal`` the next start knows them.
        """
        entries = [
            e for e in self.entries.values() if isinstance(e, SavedRelation) and e.fingerprint is not None
        ]
        stored = [(grouped(parse(e.text).require())[0], e.fingerprint or "") for e in entries]
        if len(stored) < 2:
            return
        found = have_values(stored, self.fingerprint)
        if (
            found != self.fingerprint
            and journal is not None
            and all(has_values(s, known) for s, known in stored)
        ):
            self.fingerprint = found
            journal.put_entry(Entry(VALUES, VALUES, "", {"seal": found}))

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
