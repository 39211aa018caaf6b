"""Publishes tables and streams of an app to other apps of the process, as ``memory://name``."""

from __future__ import annotations

from pathlib import Path

from millpond.connectors.memory.source import Published, publish, withdraw
from millpond.connectors.stream.source import stream_uri
from millpond.sql.catalog import Relation
from millpond.store.store import Store


class Publications:
    """Publishes tables, and streams that are in ``home``."""

    def __init__(self, store: Store, home: Path):
        self._store = store
        self._home = home
        self._made: dict[str, Published] = {}

    def add(self, relation: Relation) -> None:
        name, store = relation.name, self._store
        if relation.kind == "table":
            own = "own" in store.backend(name).abilities
            what = Published(name, relation.schema, lambda: store.backend(name).snapshot(), own)
        elif relation.kind == "stream" and relation.uri is None:
            what = Published(name, relation.schema, stream=stream_uri(self._home, name))
        else:
            return
        self._made[name.lower()] = what
        publish(what)

    def remove(self, name: str) -> None:
        if (what := self._made.pop(name.lower(), None)) is not None:
            withdraw(what)

    def close(self) -> None:
        for name in list(self._made):
            self.remove(name)
