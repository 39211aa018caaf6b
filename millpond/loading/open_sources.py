"""Opens the sources behind the streams and URIs of an app."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millpond.connectors.source import Source
from millpond.connectors.stream.source import stream_uri
from millpond.plan.connectors import Connectors
from millpond.sql.catalog import Relation

OpenSource = Callable[[Relation], Source]
"""Returns the source behind a stream or URI."""


class Sources:
    """Opens sources with the options that statements specify. ``home`` has the streams that the app stores itself."""

    def __init__(self, connectors: Connectors, home: Path):
        self._connectors = connectors
        self._home = home
        self.values: dict[str, Mapping[str, Any]] = {}
        """The options, by URI, or by the name of a stream in lower case."""

    def apart(self, connectors: Connectors) -> Sources:
        """Returns the same for one query, whose options and open sources nobody else sees."""
        made = Sources(connectors, self._home)
        made.values = dict(self.values)
        return made

    def open(self, relation: Relation) -> Source:
        """Returns the source behind a stream or URI."""
        if relation.uri is None:
            return self._connectors.open(stream_uri(self._home, relation.name), {}, relation.schema)
        is_stream = relation.kind == "stream"
        values = self.values.get(relation.name.lower() if is_stream else relation.uri, {})
        declared = relation.schema if is_stream and not relation.guessed else relation.declared
        return self._connectors.open(relation.uri, values, declared)
