"""Compares offsets of a topic: the next offset of each partition, and the identity of the topic."""

from __future__ import annotations

from millpond.changes import Offset
from millpond.connectors.job_progress import JobProgress, TopicsProgress
from millpond.errors import AdoptionRefused

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


def adopted(topic: str, progress: JobProgress, latest: Offset) -> Offset:
    """Returns the offset up to which a job has read a topic, which is at ``latest`` now."""
    if not isinstance(progress, TopicsProgress) or set(progress.topics) != {topic}:
        raise AdoptionRefused(
            f'the job has read {progress}, and the statement reads topic "{topic}"',
            hint="a statement can go on with the one topic that the job reads",
        )
    found = progress.topics[topic]
    for partition, at in found.items():
        end = latest.get(partition)
        if end is None or at > end:
            raise AdoptionRefused(
                f'the job has read partition {partition} of topic "{topic}" up to offset {at}, and '
                + ("there is no such partition" if end is None else f"it ends at {end}"),
                hint="it is another topic, or it was deleted and created again since",
            )
    return {**found, ID: latest[ID]}
