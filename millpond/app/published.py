"""What other apps of the process can read of this one, as ``memory://name``: its tables, and streams that it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.connectors.memory.source import Published, publish, withdraw
from millpond.connectors.stream.source import stream_uri
from millpond.sql.catalog import Relation

if TYPE_CHECKING:
    from millpond.app.app import App


class Publications:
    def __init__(self, app: App):
        self._app = app
        self._made: dict[str, Published] = {}

    def add(self, relation: Relation) -> None:
        name, app = relation.name, self._app
        if relation.kind == "table":
            own = "own" in app._store.backend(name).abilities
            what = Published(name, relation.schema, lambda: app._store.backend(name).snapshot(), own)
        elif relation.kind == "stream" and relation.uri is None:
            what = Published(name, relation.schema, stream=stream_uri(app._state.path, name))
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
