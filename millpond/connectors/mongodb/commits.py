"""Makes commits of many documents where a server has no transactions.

All that a commit changes is stored first. Then one change of one document, the state, makes it the newest commit, with
the number after the last: from that moment it holds. Then it is applied to the collections, by changes that can be
repeated, and marked as applied. Whoever finds a commit that is not applied reads the collections with its changes in
their place; the next writer applies it, if the process that has made it is gone.

millpond_state       one document: the number of the newest commit, whether it is applied, its changes if they are few
millpond_commits     the changes of a commit that has many
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from millpond.changes import Position

Document = dict[str, Any]
T = TypeVar("T")

STATE = "millpond_state"
COMMITS = "millpond_commits"
POSITIONS = "millpond_positions"
TABLES = "millpond_tables"
ONE = {"_id": "commits"}
"""The document that is the state."""

_SMALL = 1 << 20
"""Bytes of changes that are in the state itself."""
_PART = 8 << 20
"""Bytes of changes in one document, unless a single row has more."""


@dataclass
class CollectionChanges:
    """Contains what a commit changes in one collection: documents that are put, by what identifies them, and those
    that end (None).
    """

    documents: dict[Any, Document | None] = field(default_factory=dict)
    updates: list[tuple[Document, Document]] = field(default_factory=list)
    """Filters, and what is changed in all documents that match, once more too."""
    dropped: bool = False


@dataclass
class CommitChanges:
    """Contains what a commit changes, by collection."""

    collections: dict[str, CollectionChanges] = field(default_factory=dict)

    def of(self, collection: str) -> CollectionChanges:
        return self.collections.setdefault(collection, CollectionChanges())

    def put(self, collection: str, document: Document) -> None:
        self.of(collection).documents[document["_id"]] = document

    def end(self, collection: str, id_: Any) -> None:
        self.of(collection).documents[id_] = None

    def __bool__(self) -> bool:
        return bool(self.collections)

    def parts(self) -> tuple[list[Document], bool]:
        """Returns the changes as documents, none of which is too large, and whether the state itself can have them."""
        found: list[Document] = []
        size, total = 0, 0
        for name, changes in self.collections.items():
            for each, bytes_ in _entries(name, changes):
                if not found or size + bytes_ > _PART:
                    found.append({"changes": []})
                    size = 0
                found[-1]["changes"].append(each)
                size += bytes_
                total += bytes_
        return found, len(found) == 1 and total <= _SMALL

    @staticmethod
    def read(parts: Sequence[Document]) -> CommitChanges:
        made = CommitChanges()
        for part in parts:
            for each in part["changes"]:
                changes = made.of(each["in"])
                match each["do"]:
                    case "put":
                        changes.documents |= {d["_id"]: d for d in each["rows"]}
                    case "end":
                        changes.documents |= dict.fromkeys(each["rows"])
                    case "update":
                        changes.updates.append(_read_update(each["update"]))
                    case "drop":
                        changes.dropped = True
        return made


def _entries(name: str, changes: CollectionChanges) -> Iterator[tuple[Document, int]]:
    """Yields what is done in a collection, each with its size in bytes, about."""
    from bson import encode

    if changes.dropped:
        yield {"in": name, "do": "drop"}, 0
    for where, how in changes.updates:
        # Servers before 5.0 store no fields whose names begin with $.
        update = encode({"where": where, "how": how})
        yield {"in": name, "do": "update", "update": update}, len(update)
    for ids, size in id_parts([id_ for id_, document in changes.documents.items() if document is None]):
        yield {"in": name, "do": "end", "rows": ids}, size
    put = [document for document in changes.documents.values() if document is not None]
    for documents, size in _sized(put, lambda document: len(encode(document))):
        yield {"in": name, "do": "put", "rows": documents}, size


def _read_update(update: bytes) -> tuple[Document, Document]:
    from bson import decode
    from bson.codec_options import CodecOptions, DatetimeConversion

    options: CodecOptions[Document] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
    found = decode(update, options)
    return found["where"], found["how"]


def id_parts(ids: Sequence[Any]) -> Iterator[tuple[list[Any], int]]:
    """Yields what identifies documents, in parts that are not large, with their bytes."""
    from bson import encode

    return _sized(ids, lambda id_: len(encode({"": id_})))


def _sized(items: Sequence[T], size_of: Callable[[T], int]) -> Iterator[tuple[list[T], int]]:
    """Yields items, in parts that are not large, with their bytes."""
    part: list[T] = []
    size = 0
    for item in items:
        bytes_ = size_of(item) + 8
        if part and (size + bytes_ > _SMALL // 2 or len(part) >= 1000):
            yield part, size
            part, size = [], 0
        part.append(item)
        size += bytes_
    if part:
        yield part, size


@dataclass(frozen=True)
class State:
    """Returns what the state says, without changes."""

    number: int
    applied: bool
    owner: Document
    """Who applies the commit: a machine, a process and an object in it."""
    token: str
    """The name of the commit."""
    parts: int
    """How many documents have its changes; 0 if the state has them."""
    beat: int
    """Grows while the owner is at work."""
    recent: tuple[str, ...] = ()
    """The names of the last commits."""

    @staticmethod
    def read(found: Document) -> State:
        return State(
            int(found["number"]),
            bool(found["applied"]),
            found.get("owner") or {},
            str(found.get("token") or ""),
            int(found.get("parts") or 0),
            int(found.get("beat") or 0),
            tuple(found.get("recent") or ()),
        )


_LIVING: set[str] = set()
"""Objects of this process that may be at work."""


def owner_of(me: str) -> Document:
    """Returns what names an object of this process."""
    _LIVING.add(me)
    return {"host": _host(), "pid": os.getpid(), "began": _began(os.getpid()), "object": me}


def ended(me: str) -> None:
    """Says that an object is at work no more."""
    _LIVING.discard(me)


def is_gone(owner: Document) -> bool:
    """Returns whether the owner is certainly at work no more: an object or a process of this machine that has ended."""
    if owner.get("host") != _host():
        return False
    pid = int(owner.get("pid") or 0)
    if pid == os.getpid():
        return owner.get("object") not in _LIVING
    began = _began(pid)
    return not began or (began != _THERE and began != owner.get("began"))


@cache
def _host() -> str:
    """Returns what names the machine, and in it those processes that have their numbers from the same count: two
    containers may have the name and the kernel in common.
    """
    boot, processes = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    named = [socket.gethostname()]
    with suppress(OSError):
        named.append(boot.read_text().strip())
    with suppress(OSError):
        named.append(str(processes.stat().st_ino))
    return " ".join(named)


_THERE = "there"
"""Says of a process that it is there, when it began is not known."""


def _began(pid: int) -> str:
    """Returns when a process began, which tells it from a later one with its number; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        return _THERE
    return _THERE


def longs(document: Document) -> Document:
    """Returns the document with integers of 64 bits at its top."""
    from bson import Int64

    return {k: Int64(v) if type(v) is int else v for k, v in document.items()}


def position_of(found: Document | None) -> Position | None:
    """Returns the position that a document contains."""
    if found is None:
        return None
    return Position(found["_id"], found["checkpoint"], int(found["batch"]), json.loads(found["offsets"]))
