"""Tells the followers of tables in databases what the logs of the databases contain."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from millpond.changes import Changes
from millpond.store.change_feed import Feed
from millpond.store.visibility import Visibility
from millpond.tables.base import Backend


class LoggedTables:
    """Stores which tables are followed by the log of their database.

    Their own commits are not told to followers when they are made: the log contains them too, between those of others.
    So followers receive every change once, in the order in which the database has committed.
    """

    def __init__(
        self, tables: Mapping[str, Backend], visibility: Visibility, feed: Feed, publishing: threading.Lock
    ):
        self._tables = tables
        self._visibility = visibility
        self._feed = feed
        self._publishing = publishing
        self._names: set[str] = set()

    def __contains__(self, table: str) -> bool:
        return table.lower() in self._names

    def add(self, table: str) -> None:
        """Tells the changes of a table by its log from now on."""
        self._names.add(table.lower())

    def discard(self, table: str) -> None:
        self._names.discard(table.lower())

    def others(self, changes: Mapping[str, Changes]) -> dict[str, Changes]:
        """Returns the changes of tables that no log tells."""
        return {name: change for name, change in changes.items() if name not in self._names}

    def notify(self, changes: Mapping[str, Changes]) -> None:
        """Notifies followers of what transactions of a database have changed, by names in lower case."""
        for name, change in changes.items():
            self._tables[name].noted(change)
        with self._publishing:
            interrupt = self._visibility.notify(dict(changes))
        self._visibility.committed()
        if interrupt is not None:
            raise interrupt

    def lose(self, table: str, why: str) -> None:
        """Tells that rows of a table have changed, but not which, and why."""
        name = table.lower()
        self._tables[name].lost()
        with self._publishing:
            self._feed.lose([name], why)
        self._visibility.committed()
