"""Makes commits visible in their tables, and notifies those that wait for them."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy

from millpond import faults, steps
from millpond.changes import Changes
from millpond.errors import StoreStopped
from millpond.store.change_feed import Feed
from millpond.tables.base import Backend
from millpond.tables.memory import MemoryTable, Publication

log = logging.getLogger("millpond")


class Visibility:
    """Applies durable commits. If that fails, reads and commits stop.

    ``bring_in``, ``tell`` and ``note`` return an interrupt that came meanwhile; the caller raises it when everything is
    done.
    """

    def __init__(self, tables: Mapping[str, Backend], feed: Feed):
        self._tables = tables
        self._feed = feed
        self._listeners: list[Callable[[], None]] = []
        self._stream_listeners: dict[str, list[Callable[[], None]]] = {}
        self.stopped: StoreStopped | None = None
        """The error that stopped reads and commits."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Registers a function to call after each commit, in the thread that committed."""
        self._listeners.append(listener)

    def listen_to_stream(self, stream: str, listener: Callable[[], None]) -> Callable[[], None]:
        """Registers a function to call after rows were sent to an embedded stream, in the thread that sent them.
        Returns what removes it.
        """
        listeners = self._stream_listeners.setdefault(stream.lower(), [])
        listeners.append(listener)

        def remove() -> None:
            if listener in listeners:
                listeners.remove(listener)

        return remove

    def sent(self, streams: Iterable[str]) -> None:
        """Calls those that wait for rows of these streams."""
        for stream in streams:
            for listener in list(self._stream_listeners.get(stream.lower(), ())):
                listener()

    def bring_in(
        self, changes: Mapping[str, Changes], number: int, *, committed: bool
    ) -> BaseException | None:
        """Applies a commit to its tables, which readers see in all of them or in none. The caller holds ``publishing``.

        What is ``committed`` is not undone: a table that fails is tried again. If it fails again the store stops, since
        readers and later commits would see rows that are behind. This does not raise, since the commit itself has
        succeeded. An interrupt that came meanwhile is returned; the caller raises it when everything is done.
        """
        tables = [self._tables[name.lower()] for name in changes]
        with self._at_once(tables):
            return self._applied(changes, number, committed=committed)

    @contextmanager
    def _at_once(self, tables: Sequence[Backend]) -> Iterator[None]:
        """Runs the code inside, and then shows readers, also those of single rows, all tables in one step."""
        several = len(tables) > 1
        publication, shown = Publication(), [t for t in tables if several and isinstance(t, MemoryTable)]
        try:
            for table in shown:
                table.storage.join(publication)
            yield
        finally:
            publication.done = True
            for table in shown:
                table.storage.release()

    def _applied(
        self, changes: Mapping[str, Changes], number: int, *, committed: bool
    ) -> BaseException | None:
        interrupt: BaseException | None = None
        for at, (name, change) in enumerate(changes.items()):
            backend = self._tables[name.lower()]
            if backend.last_commit == number:
                continue
            try:
                faults.reach("commit: journalled")
                with steps.step(f"apply to table {name}") as noted:
                    backend.apply(change, commit=number)
                    noted.tell(len(change), change.rows.nbytes)
            except BaseException as error:
                log.warning('table "%s" could not take a commit, it is tried again: %r', name, error)
                interrupt = interrupt_in(error) or interrupt
                try:
                    gc.collect()
                    backend.apply(change, commit=number)
                except BaseException as again:
                    if not committed and not at:
                        raise
                    self.stop(again)
                    break
        return interrupt

    def notify(self, changes: dict[str, Changes]) -> BaseException | None:
        """Notifies the followers of tables of a commit, by names in lower case. The caller holds ``publishing``.
        Returns as ``bring_in``.
        """
        try:
            self._feed.add(changes)
        except BaseException as error:
            log.warning("what a commit changed could not be noted, all rows count as changed: %r", error)
            self._feed.lose(changes, "the changes of a commit could not be noted")
            return interrupt_in(error)
        return None

    def committed(self) -> None:
        """Calls those that wait for commits, each regardless of the others. Their errors do not affect the commit."""
        try:
            faults.reach("commit: visible")
        except Exception:
            log.exception("a commit succeeded, and what came after it failed")
        finally:
            for listener in self._listeners:
                try:
                    listener()
                except Exception:
                    log.exception("a commit succeeded, and what waits for it failed")

    def stop(self, why: BaseException) -> None:
        """Stops reads and commits: tables in memory are behind what is committed."""
        error = StoreStopped(
            f"the tables in memory are behind what was committed, since one could not take a change: {why!r}",
            hint="start the app again: all that was committed is there",
        )
        self.stopped = error
        log.error("%s", error)
        for backend in tuple(self._tables.values()):
            backend.fail(error)

    def check_running(self) -> None:
        if self.stopped is not None:
            raise copy(self.stopped)

    def note(self, changed: Mapping[str, Changes]) -> BaseException | None:
        """Notifies tables of what their database has committed. Changed rows left the caches before that, so a table
        that fails is not behind. Returns as ``bring_in``.
        """
        interrupt: BaseException | None = None
        try:
            faults.reach("database: committed")
        except BaseException as error:
            log.warning("a database has committed, and what follows failed: %r", error)
            interrupt = interrupt_in(error)
        for name, change in changed.items():
            try:
                self._tables[name].noted(change)
            except BaseException as error:
                log.warning('table "%s" could not note what its database has committed: %r', name, error)
                interrupt = interrupt_in(error) or interrupt
        return interrupt


def interrupt_in(error: BaseException) -> BaseException | None:
    """Returns the error if it is meant for the thread, not for its work: Ctrl-C, the end of the interpreter."""
    return None if isinstance(error, Exception) else error
