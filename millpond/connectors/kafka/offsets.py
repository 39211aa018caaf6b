"""Compares offsets of a topic: the next offset of each partition, and the identity of the topic."""

from __future__ import annotations

from millpond.changes import Offset

ID = "topic"
"""The field of an offset with the identity of the topic: a topic that was created again under the same name has
another.
"""


def places_in(offset: Offset) -> dict[str, int]:
    """Returns the offsets of the partitions."""
    return {p: o for p, o in offset.items() if p != ID}


def same_topic(one: Offset, other: Offset) -> bool:
    """Returns whether both are of one topic, not of one that was created again; old brokers do not tell."""
    ids = {one.get(ID, ""), other.get(ID, "")}
    return len(ids) == 1 or "" in ids
