"""Reads the frame of messages whose schemas are in a registry: a zero byte, the schema's number, then the value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

HEADER = 5
UNFRAMED = (
    "it has no number of a schema: a message of a registry begins with a zero byte and four of the number"
)


class Described(NamedTuple):
    """Describes a schema of a registry, and its kind: AVRO, JSON, …"""

    number: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """The name and the text of each schema that it refers to, also through others; what one refers to precedes it."""


class Schemas(Protocol):
    """Looks up schemas in a registry, for readers."""

    def schema(self, number: int) -> Described:
        """Returns the schema of a number. Raises BadData if there is none."""


def by_schema(values: pa.Array) -> Iterator[tuple[int | None, npt.NDArray[np.int64]]]:
    """Yields the numbers of schemas and the places of their messages; None for messages without one. No
    value is NULL.
    """
    data = values.cast(pa.large_binary())
    _, offsets, buffer = data.buffers()
    places = np.frombuffer(offsets, np.int64)[data.offset : data.offset + len(data) + 1]
    raw = np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)
    framed = np.diff(places) >= HEADER
    begin = places[:-1][framed]
    framed[framed] = raw[begin] == 0
    begin = places[:-1][framed]
    numbers = raw[begin[:, None] + np.arange(1, HEADER)].copy().view(">u4")[:, 0].astype(np.int64)
    at = np.flatnonzero(framed)
    for number in np.unique(numbers):
        yield int(number), at[numbers == number]
    if len(at) < len(values):
        yield None, np.flatnonzero(~framed)


def stripped(values: pa.Array) -> pa.Array:
    """Returns the messages without their headers."""
    data = values.cast(pa.large_binary())
    _, offsets, buffer = data.buffers()
    places = np.frombuffer(offsets, np.int64)[data.offset : data.offset + len(data) + 1]
    size = np.diff(places) - HEADER
    ends = np.concatenate([[0], np.cumsum(size)])
    index = np.repeat(places[:-1] + HEADER - ends[:-1], size) + np.arange(ends[-1])
    left = np.frombuffer(buffer, np.uint8)[index] if len(values) else np.empty(0, np.uint8)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(left)]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers).cast(pa.binary())


def header(number: int) -> bytes:
    return b"\x00" + number.to_bytes(4, "big")
