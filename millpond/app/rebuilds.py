"""Rebuilds the tables of an upgrade beside the old ones, while the app runs.

The commit of an upgrade notes in the entry of such a table which statement it gets. The old statement goes on, and the
table is served and joined, until the new one has caught up and both are swapped in one commit. A start after a kill
finds the note and begins again.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field, replace

from millpond.app.beside import Beside
from millpond.app.replace import Replacements
from millpond.errors import Closed, Conflict, Error, TimedOut, known
from millpond.store.catalog import SavedRelation
from millpond.store.undo import Undo

log = logging.getLogger("millpond")


@dataclass(eq=False, repr=False)
class Rebuilds:
    """Rebuilds the tables that an upgrade has noted, one after another, in a thread of its own."""

    lock: threading.RLock
    beside: Beside
    replacements: Replacements
    failed: Error | None = field(default=None, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _ended: bool = field(default=False, init=False)

    @property
    def waiting(self) -> list[SavedRelation]:
        """Returns the entries of tables that are still to be rebuilt."""
        entries = list(self.replacements.saved.entries.values())
        return [e for e in entries if isinstance(e, SavedRelation) and e.following is not None]

    def begin(self) -> None:
        """Begins to rebuild what is noted, when the statements of the app have started."""
        if self.waiting and not self.replacements.alters.read_only:
            self._thread = threading.Thread(target=self._run, name="millpond-rebuild", daemon=True)
            self._thread.start()

    def wait(self, timeout: float) -> None:
        """Waits until all tables are rebuilt; raises the error of the first one that cannot be."""
        if self._thread is None:
            return
        self._thread.join(min(timeout, threading.TIMEOUT_MAX))
        if self._thread.is_alive():
            names = ", ".join(e.name for e in self.waiting)
            raise TimedOut(f"these tables are still being rebuilt: {names}", hint="wait longer")
        if self.failed is not None:
            raise self.failed

    def end(self) -> None:
        """Stops, when the app is being closed: what is not swapped is removed, and begins again at the next start."""
        self._ended = True
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        for entry in self.waiting:
            if self._ended:
                return
            try:
                if entry.shadowed:
                    self._keep(entry)
                    continue
                with self.lock, Undo() as undo:
                    self._rebuild(entry, undo)
                log.info("table %s is rebuilt", entry.name)
            except Closed:
                return
            except Exception as error:
                wrong = known(error)
                self.failed = self.failed or wrong
                log.error("table %s stays as it was: %s", entry.name, wrong.message)

    def _keep(self, entry: SavedRelation) -> None:
        """Builds what stays beside a table, or lets it go on, and waits until it has caught up."""
        with self.lock:
            shadow = self.beside.kept(entry)
            if shadow is None:
                checked, before = self.beside.following(entry), self.replacements.catalog.find(entry.name)
                assert before is not None
                with Undo() as undo:
                    if self.replacements.way_of(checked).kind != "rebuilt":
                        self._rebuild(entry, undo)
                        return
                    shadow = self.beside.keep(checked, before, undo)
                log.info('"%s" is built beside table %s', shadow.relation.name, entry.name)
            try:
                self.replacements.shadows.catch_up(shadow)
            except Conflict:
                left = self.replacements.saved.relation(entry.id)
                if left is not None and left.following is not None:
                    raise

    def _rebuild(self, entry: SavedRelation, undo: Undo) -> None:
        self.replacements.replace(self.beside.following(entry), undo, remember=False)
        left = self.replacements.saved.relation(entry.id)
        if left is not None and left.following is not None:  # it means the same
            text, identity = left.following
            renewed = replace(left, text=text, identity=identity, following=None)
            self.replacements.store.journal.put_entry(renewed.entry())
            self.replacements.saved.add(renewed)
