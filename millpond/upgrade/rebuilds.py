"""Rebuilds the tables and derived streams of an upgrade beside the old ones, while the app runs.

The commit of an upgrade notes in the entry of such a table which statement it gets. The old statement goes on, and the
table is served and joined, until the new one has caught up and both are swapped in one commit. A start after a kill
finds the note and begins again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from millpond.errors import Closed, Conflict, Error, TimedOut, known
from millpond.replace.chains import Link
from millpond.replace.or_replace import Replacements
from millpond.replace.shadow_tables import ShadowTables
from millpond.store.catalog import SavedRelation
from millpond.store.undo import Undo

log = logging.getLogger("millpond")


@dataclass(eq=False, repr=False)
class Rebuilds:
    """Rebuilds the tables that an upgrade has noted, one after another, in a thread of its own."""

    lock: threading.RLock
    shadows: ShadowTables
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
        left = self.waiting
        streams = [e for e in left if e.kind == "stream"]
        built = self._chained(streams) if streams else set()
        left = [e for e in left if e.id not in built]
        for entry in left:
            if self._ended:
                return
            if not self._attempt(f"table {entry.name}", partial(self._one, entry)):
                return

    def _attempt(self, what: str, build: Callable[[Undo], None]) -> bool:
        """Builds something; returns False if the app is being closed."""
        try:
            with self.lock, Undo() as undo:
                build(undo)
        except Closed:
            return False
        except Exception as error:
            wrong = known(error)
            self.failed = self.failed or wrong
            log.error("%s stays as it was: %s", what, wrong.message)
        return True

    def _chained(self, streams: Sequence[SavedRelation]) -> set[str]:
        """Rebuilds streams with what reads them; returns the ids of all of these."""
        chains, built = self.replacements.chains, {e.id for e in streams}
        named = ", ".join(e.name for e in streams)

        def build(undo: Undo) -> None:
            links = chains.links([Link(e, e.following[0]) for e in streams if e.following is not None])
            built.update(link.entry.id for link in links)
            names = chains.replace(links, undo)
            log.info("rebuilt: %s", ", ".join(names))

        self._attempt(f"stream {named}", build)
        return built

    def _one(self, entry: SavedRelation, undo: Undo) -> None:
        if entry.shadowed:
            self._keep(entry)
            return
        self._rebuild(entry, undo)
        log.info("table %s is rebuilt", entry.name)

    def _keep(self, entry: SavedRelation) -> None:
        """Builds what stays beside a table, and waits until it has caught up or is paused."""
        with self.lock:
            if self.shadows.kept(entry) is not None:
                return  # it goes on as any table
            checked, before = self.shadows.following(entry), self.replacements.catalog.find(entry.name)
            assert before is not None
            with Undo() as undo:
                if self.replacements.way_of(checked).kind != "rebuilt":
                    self._rebuild(entry, undo)
                    return
                shadow = self.shadows.keep(checked, before, undo)
            log.info('"%s" is built beside table %s', shadow.relation.name, entry.name)
            try:
                self.replacements.shadows.catch_up(shadow, held=True)
            except Conflict:
                left = self.replacements.saved.relation(entry.id)
                if left is not None and left.following is not None:
                    raise

    def _rebuild(self, entry: SavedRelation, undo: Undo) -> None:
        self.replacements.replace(self.shadows.following(entry), undo, remember=False)
        left = self.replacements.saved.relation(entry.id)
        if left is not None and left.following is not None:  # it means the same
            text, identity = left.following
            renewed = replace(left, text=text, identity=identity, following=None)
            self.replacements.store.journal.put_entry(renewed.entry())
            self.replacements.saved.add(renewed)
