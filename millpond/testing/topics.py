"""Replaces topics in tests, without a broker. The messages that a case sends are stored in the journal of its app; the
connector of the topic decodes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.connectors.source import DELETED, Source
from millpond.connectors.stand_in import MESSAGES, Message, given_topics
from millpond.errors import Error
from millpond.records import to_arrow
from millpond.records.text import to_json
from millpond.sql.parse import parse
from millpond.sql.statements import CreateStream
from millpond.testing.cases import Case, Step
from millpond.testing.values import parse_cell
from millpond.types import Schema

_OWN = ("_key", "_timestamp", DELETED)
"""The fields of a row that describe its message, in addition to its value."""


def is_given(uri: str) -> bool:
    """Returns whether a URI names a topic that a test replaces."""
    scheme, mark, _ = uri.partition("://")
    return bool(mark) and scheme in given_topics()


def topic_of(uri: str) -> str:
    """Returns the topic that a URI names."""
    return uri.partition("://")[2].partition("?")[0].strip("/").rpartition("/")[2]


def messages_of(step: Step) -> list[Message]:
    """Returns the messages of a step that sends rows: lines of JSON unchanged, or the rows of a table as JSON."""
    if step.grid is None:
        return [_of_line(line) for line in step.text.splitlines() if line.strip()]
    names = step.grid.names
    cells = ([_cell(c, n) for n, c in zip(names, row, strict=True)] for row in step.grid.rows)
    return [_of_record(dict(zip(names, row, strict=True))) for row in cells]


def _cell(text: str, name: str) -> Any:
    value = parse_cell(text, pa.string() if name in _OWN[:2] else None)
    # A number keeps the digits that it is written with.
    return Decimal(text) if isinstance(value, float) and text[0].isdigit() else value


def _of_line(line: str) -> Message:
    with suppress(ValueError):
        record = json.loads(line, parse_float=Decimal)
        if isinstance(record, dict) and any(name in record for name in _OWN):
            return _of_record(record)
    return Message(None, line.encode(), None)


def _of_record(record: dict[str, Any]) -> Message:
    key, timestamp, deleted = (record.pop(name, None) for name in _OWN)
    value = None if deleted in (True, "true") else to_json(record).encode()
    return Message(None if key is None else str(key).encode(), value, timestamp)


class Topics:
    """Contains the topics of a case, with all that it sends to them."""

    def __init__(self, case: Case, state: Path):
        self._state = state
        self._streams = dict(_streams(case))
        self._given: dict[str, list[Message]] = {}
        self._offsets: dict[str, int] = {}
        for step in case.steps:
            topic = self.find(step.argument) if step.kind == "send" else None
            if topic is not None:
                self._given.setdefault(topic, []).extend(messages_of(step))

    def find(self, name: str) -> str | None:
        """Returns the topic that a step sends to, by its URI or by a stream over it; None for an embedded stream."""
        return topic_of(name) if is_given(name) else self._streams.get(name.lower())

    def open(self, uri: str, values: Mapping[str, Any], declared: Schema | None) -> Source | None:
        """Returns the source that is read in place of a topic."""
        if not is_given(uri):
            return None
        kind = given_topics()[uri.partition(":")[0]]
        return kind(uri, values, declared, self._state, tuple(self._given.get(topic_of(uri), ())))

    def rows(self, topic: str, messages: Sequence[Message], now: datetime) -> pa.Table:
        """Returns messages as the journal stores them, with the next offsets."""
        first = self._offsets.get(topic, 0)
        self._offsets[topic] = first + len(messages)
        records = [
            {
                "key": m.key,
                "value": m.value,
                "partition": 0,
                "offset": first + i,
                "timestamp": m.timestamp or now,
            }
            for i, m in enumerate(messages)
        ]
        return to_arrow(MESSAGES, records, what=f'topic "{topic}"')


def _streams(case: Case) -> Iterator[tuple[str, str]]:
    """Yields the streams over topics that the SQL of a case declares."""
    for step in case.steps:
        if step.kind in ("app", "sql"):
            for statement in _parsed(step.text):
                uris = [x.value for x in getattr(statement, "settings", ()) if x.name.lower() == "connector"]
                if isinstance(statement, CreateStream) and uris and is_given(uris[0]):
                    yield statement.name.lower(), topic_of(uris[0])


def _parsed(text: str) -> Iterable[object]:
    try:
        return parse(text).statements
    except Error:
        return ()  # the error is reported when it runs
