"""Records which views are equal to their queries: the next start does not evaluate these again.

It is recorded at the end of an app, and when no change has come for a while, with the number of the last commit. A
start, also one after a kill, believes it if no commit came after it. Each change of the catalog removes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from millpond.journal.catalog import Entry
from millpond.journal.revision import FINDINGS
from millpond.sql.userfunctions import calls_functions_of_programs
from millpond.store.store import Store
from millpond.version import __version__
from millpond.views.live_view import LiveView

EQUAL_VIEWS = FINDINGS
"""The kind of the journal's entry that has them."""


class EqualViews:
    """Contains what the last app has recorded, and records it for the next one."""

    def __init__(self, store: Store, engine: str):
        self._store = store
        self._made_by = f"{__version__} {engine}"
        self._found: Mapping[str, str] = {}
        self._commit = -1
        self._stale = False

    def restore(self, entry: Entry) -> None:
        """Takes what the journal has; nothing if a commit came after it."""
        self._stale = entry.data["commit"] != self._store.journal.last_commit()
        if not self._stale:
            self._found, self._commit = entry.data["views"], entry.data["commit"]

    def begin(self) -> None:
        """Removes a record that is not believed: the number of its commit may be given again."""
        if self._stale:
            self._store.journal.drop_entry(EQUAL_VIEWS, EQUAL_VIEWS)
            self._stale = False

    def cover(self, view: LiveView) -> bool:
        """Returns whether a restored view was equal to its query, and neither its inputs nor its table have changed."""
        name = view.plan.target.name.lower()
        if view.plan.name not in self._found or not self._lasting(view):
            return False
        unchanged = all(
            self._store.backend(n).last_commit <= self._commit for n in sorted({*view.tables, name})
        )
        return unchanged and self._found[view.plan.name] == self._print(view)

    def write(self, views: Iterable[LiveView]) -> None:
        """Records that these views are equal to their queries. No commit may come after it."""
        found = {v.plan.name: self._print(v) for v in views if self._lasting(v)}
        if found:
            commit = self._store.journal.last_commit()
            self._store.journal.put_entry(
                Entry(EQUAL_VIEWS, EQUAL_VIEWS, "", {"commit": commit, "views": found})
            )

    def _lasting(self, view: LiveView) -> bool:
        """Returns whether its inputs and its table survive a restart unchanged, and its query answers the same."""
        store, names = self._store, {*view.tables, view.plan.target.name.lower()}
        query = view.plan.query
        of_tables = all(i.relation.kind == "table" for i in query.inputs)
        return (
            of_tables
            and not calls_functions_of_programs(query.expression)  # they may be others next time
            and view.by_changes.possible
            and all(
                store.journals(n) and store.backend(n).database is None and not store.backend(n).evicts
                for n in names
            )
        )

    def _print(self, view: LiveView) -> str:
        """Returns a short text that changes with all that its rows depend on besides the rows of its inputs."""
        parts = [self._made_by, view.plan.text, str(view.schema.arrow()), repr(view.schema.key)]
        parts += [f"{n} {self._store.backend(n).schema.arrow()}" for n in sorted(view.tables)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()
