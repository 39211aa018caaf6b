"""Finds where Avro records end: they follow one another without a separator. Only lengths are read; the values of all
records are decoded together afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

from millpond.formats.avroschema import Node

Skip = Callable[[bytes, int], int]
"""The place after the value that begins at a place. Raises IndexError or ValueError if there is none."""

_MOST_EMPTY = 10_000
"""Maximum number of consecutive values that take no bytes."""
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def ends_of(data: bytes, count: int, node: Node) -> list[int]:
    """Returns the places after each of ``count`` records, which are all of the data. Raises ValueError if
    they are not.
    """
    if node.can_be_empty and count > _MOST_EMPTY:
        raise ValueError("records of no bytes")
    skip, at, ends = skipper(node), 0, []
    try:
        for _ in range(count):
            at = skip(data, at)
            ends.append(at)
    except IndexError:
        at = len(data) + 1
    if at != len(data):
        raise ValueError(f"its {count} records do not end where it does")
    return ends


def skipper(node: Node) -> Skip:
    match node.kind:
        case "record":
            return _all([skipper(i) for i in node.inner])
        case "union":
            return _one_of([skipper(i) for i in node.inner])
        case "array":
            return _items([skipper(node.inner[0])], node.inner[0].can_be_empty)
        case "map":
            return _items([_bytes, skipper(node.inner[0])], False)
        case "bytes" | "string":
            return _bytes
        case "fixed" | "decimal" if node.kind == "fixed" or node.size:
            return _fixed(node.size)
        case "decimal":
            return _bytes
        case kind if kind in _SIZES:
            return _fixed(_SIZES[kind])
    return _number


def long_at(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number at a place, and the place after it."""
    byte = data[at]
    value, shift = byte & 0x7F, 7
    while byte > 0x7F:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), at + 1


def _number(data: bytes, at: int) -> int:
    while data[at] > 0x7F:
        at += 1
    return at + 1


def _bytes(data: bytes, at: int) -> int:
    size, at = long_at(data, at)
    if size < 0:
        raise ValueError("a length below 0")
    return at + size


def _fixed(size: int) -> Skip:
    return lambda data, at: at + size


def _all(parts: list[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        for part in parts:
            at = part(data, at)
        return at

    return skip


def _one_of(branches: list[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        branch, at = long_at(data, at)
        if branch < 0:
            raise ValueError("there is no such branch of a union")
        return branches[branch](data, at)

    return skip


def _items(parts: list[Skip], can_be_empty: bool) -> Skip:
    skip_item = _all(parts)

    def skip(data: bytes, at: int) -> int:
        while True:
            count, at = long_at(data, at)
            if count == 0:
                return at
            if count < 0:  # the bytes of the items follow
                size, at = long_at(data, at)
                if size < 0:
                    raise ValueError("a length below 0")
                at += size
                continue
            if can_be_empty and count > _MOST_EMPTY:
                raise ValueError("items of no bytes")
            for _ in range(count):
                at = skip_item(data, at)

    return skip
