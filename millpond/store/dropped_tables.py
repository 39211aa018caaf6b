"""Drops tables in databases: the journal records the drop first, and then the database removes the table.

If that fails, or the process is killed in between, the next start does it, or the next CREATE of a table of that name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from millpond.errors import Error
from millpond.journal.catalog import Entry
from millpond.journal.journal import Journal
from millpond.journal.revision import Revision
from millpond.sql.parse import parse
from millpond.store.catalog import Saved, SavedRelation, options_of, without_secrets
from millpond.tables.base import Backend
from millpond.tables.flushed_table import FlushedTable
from millpond.tables.registry import find_backend
from millpond.types import Schema

log = logging.getLogger("millpond")
LEAVING = "leaving"
"""The kind of the journal entries for such tables."""


class DroppedTables:
    """Stores the names of the tables that databases have still to remove."""

    def __init__(
        self, journal: Journal, home: Path, mask: Callable[[str], str], flush: Callable[[str], None]
    ):
        self._journal = journal
        self._flush = flush
        self._home = home
        self._mask = mask
        self._entries: dict[str, SavedRelation] = {}

    def flush(self, name: str, table: Backend) -> None:
        """Writes the last changes of a table that is dropped to its base, if it has one that stays."""
        if not isinstance(table, FlushedTable) or not table.base_stays:
            return
        try:
            self._flush(name)
        except Error as error:
            rows = table.pending.rows
            error.hint = f"its base does not have {rows:,} changed rows yet: drop it when the store answers"
            raise

    def restore(self, entry: Entry) -> None:
        found = Saved.of(entry)
        assert isinstance(found, SavedRelation)
        self._entries[entry.name.lower()] = found

    def entry(self, name: str, schema: Schema, options: Mapping[str, Any], text: str) -> Entry:
        """Returns the journal entry of a table until it is removed; ``text`` is the statement that has its password."""
        made = SavedRelation(LEAVING, name, text, "", schema, without_secrets(options))
        self._entries[name.lower()] = made
        return made.entry()

    def removed(self, names: Iterable[str]) -> None:
        """Records that their databases have removed them."""
        gone = [e.name for name in names if (e := self._entries.get(name.lower())) is not None]
        if gone:
            self._journal.revise(Revision(drop=[(LEAVING, name) for name in gone]))
        for name in gone:
            del self._entries[name.lower()]

    def finish(self) -> None:
        """Removes the remaining tables; a table that its database does not remove now stays listed, and is logged."""
        for name in list(self._entries):
            try:
                self.finish_one(name)
            except Error as error:
                why = self._mask(error.message)
                log.warning('table "%s" was dropped, and its database still has it: %s', name, why)

    def finish_stored(self, stored: str) -> None:
        """Removes the dropped tables that have that name in their databases."""
        for name, entry in list(self._entries.items()):
            if str(entry.options.get("table") or entry.name).lower() == stored.lower():
                self.finish_one(name)

    def finish_one(self, name: str) -> None:
        """Removes a dropped table of that name, if one is left."""
        entry = self._entries.get(name.lower())
        if entry is None:
            return
        options = options_of(entry, parse(entry.text))
        kind = find_backend(str(options["extension"]))
        if issubclass(kind, FlushedTable):
            kind.remove_left(entry.name, options, self._home)
            self.removed([name])
            return
        backend = kind.open(
            entry.name,
            entry.schema,
            options,
            null_keys=bool(options.get("null_keys")),
            home=self._home,
        )
        try:
            backend.remove()
        finally:
            backend.close()
        self.removed([name])
