"""Defines what a test reads in place of a topic: messages that it sends, which the journal of its app stores.

A connector has it in its file ``stand_in.py``, as a subclass of ``GivenTopic``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.connectors.stream.source import StreamSource, stream_uri
from millpond.extensions import classes_of
from millpond.types import TIMESTAMP, Column, Schema

MESSAGES = Schema(
    (
        Column("key", pa.binary()),
        Column("value", pa.binary()),
        Column("partition", pa.int32()),
        Column("offset", pa.int64()),
        Column("timestamp", TIMESTAMP),
        Column("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    )
)


@dataclass(frozen=True, slots=True)
class Message:
    key: bytes | None
    value: bytes | None
    timestamp: str | None


def stream_of(topic: str) -> str:
    """Returns the stream in the journal that has the messages of a topic."""
    return f"topic {topic}"


class GivenTopic(StreamSource, ABC):
    """Reads a topic whose messages a case sends, from the journal in ``state``; ``given`` are all of them."""

    def __init__(
        self,
        uri: str,
        values: Mapping[str, Any],
        declared: Schema | None,
        state: Path,
        given: tuple[Message, ...],
    ):
        topic, start = self.prepare_topic(uri, values, declared, given)
        super().__init__(stream_uri(state, stream_of(topic)), {"start": start}, MESSAGES)
        self.uri = uri
        self.given = given

    @property
    def pins(self) -> bool:
        """Returns False: the files contain messages, not rows."""
        return False

    @abstractmethod
    def prepare_topic(
        self, uri: str, values: Mapping[str, Any], declared: Schema | None, given: tuple[Message, ...]
    ) -> tuple[str, str]:
        """Reads the URI and the options as the connector does. Returns the topic, and where a reader starts."""


@cache
def given_topics() -> Mapping[str, type[GivenTopic]]:
    """Returns what is read in place of topics, by the schemes of their URIs."""
    return {scheme: kind for kind in classes_of("stand_in", GivenTopic) for scheme in kind.schemes}
