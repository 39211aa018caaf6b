"""Tracks files that were read: an offset lists them, each with how far it was read, and a listing finds the next
offset: what was added, grew, moved, was rewritten or removed since.

A file is unchanged if its number and time say so, or if its first bytes, up to where it was read, have the same
fingerprint. Otherwise it was rewritten, unless what was read is found under another name: logs are rotated so.
Rewritten or removed files lead to an offset with more ``rewrites``: the rows up to it are not the earlier ones and
some more.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from millpond.changes import Offset
from millpond.formats.base import Format

SMALL = 1 << 20
"""Bytes up to which a fingerprint includes all of them; of more it includes samples."""
_SAMPLE = 1 << 12
_SAMPLES = 32
LONGEST = 10
"""Times the debounce after which a file that changes all the time is accepted."""
MOST_GONE = 1000
"""Removed files that may come back."""
_ENDS = (b"\n", b"\r")
_ROTATED = r"[.\-_]\d[\d.\-_T]*"


@dataclass(frozen=True, slots=True)
class Seen:
    """Describes a file as it is now; ``id`` distinguishes it from others whatever its name."""

    path: str
    size: int
    mtime_ns: int
    id: str

    @property
    def on_any_host(self) -> tuple[str, int, int, str]:
        """Returns what is the same wherever the file is seen: on a shared drive each host numbers the device itself."""
        return self.path, self.size, self.mtime_ns, self.id.rpartition("-")[2]


@dataclass(frozen=True, slots=True)
class Entry:
    """Describes a file of an offset: as it was seen, and how far it was read. ``index`` numbers the files in the order
    of their arrival. ``open``: the last record has no end yet, and was read all the same. ``away``: it was moved to
    where nobody would look for it. ``gone``: it does not exist any more, and its rows remain valid.
    """

    path: str
    size: int
    mtime_ns: int
    id: str
    index: int
    at: int
    print: str
    open: bool = False
    away: bool = False
    gone: bool = False

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Self:
        return cls(**kept)

    @property
    def seen(self) -> Seen:
        return Seen(self.path, self.size, self.mtime_ns, self.id)


@dataclass(frozen=True, slots=True)
class Listed:
    """Contains a parsed offset. ``lost`` are the numbers of files that are removed for good, and whose rows remain
    valid; ``kept``, that there are others, which are unknown.
    """

    files: tuple[Entry, ...] = ()
    next: int = 0
    rewrites: int = 0
    kept: bool = False
    lost: tuple[int, ...] = ()

    @classmethod
    def of(cls, offset: Offset | None) -> Self:
        if offset is None:
            return cls()
        files = tuple(Entry.of(e) for e in offset["files"])
        return cls(files, offset["next"], offset["anew"], offset["kept"], tuple(offset.get("lost", ())))

    def offset(self) -> Offset:
        return {
            "files": [asdict(e) for e in self.files],
            "next": self.next,
            "anew": self.rewrites,
            "kept": self.kept,
            "lost": list(self.lost),
        }

    def by_index(self) -> dict[int, Entry]:
        return {e.index: e for e in self.files}

    @property
    def left(self) -> frozenset[int] | None:
        """Returns the numbers of files whose rows remain valid, and that nobody can read again; None if they are not
        all known.
        """
        return None if self.kept else frozenset({*self.lost, *(e.index for e in self.files if e.gone)})


class FileSet(ABC):
    """Represents where files are: a directory of this machine, an object store."""

    @abstractmethod
    def seen(self) -> list[Seen]:
        """Returns all selected files, sorted by name; none is no error."""

    @abstractmethod
    def find(self, path: str) -> Seen | None:
        """Returns one file, whether it is selected or not."""

    @abstractmethod
    def read(self, path: str, begin: int, size: int) -> bytes:
        """Returns some bytes of a file."""

    def older(self, path: str) -> Iterator[str]:
        """Yields files that may contain what was in this one before a log was rotated."""
        return iter(())


class LocalFiles(FileSet):
    """Represents files of this machine; ``paths`` returns the selected ones."""

    def __init__(self, paths: Callable[[], list[str]]):
        self._paths = paths
        self._names: dict[str, list[str]] = {}

    def seen(self) -> list[Seen]:
        found = (self.find(path) for path in self._paths())
        return [s for s in found if s is not None]

    def find(self, path: str) -> Seen | None:
        try:
            stat = os.stat(path)
        except FileNotFoundError:
            return None
        return Seen(path, stat.st_size, stat.st_mtime_ns, f"{stat.st_dev}-{stat.st_ino}")

    def read(self, path: str, begin: int, size: int) -> bytes:
        with open(path, "rb") as file:
            file.seek(begin)
            return file.read(size)

    def older(self, path: str) -> Iterator[str]:
        """Yields ``app.log.1``, ``app.log-20260131``, ``app-2026-01-31.log`` next to ``app.log``."""
        directory, name = os.path.split(path)
        stem, suffix = os.path.splitext(unrotated(name))
        stem = re.sub(_ROTATED + "$", "", stem)
        stem, suffix = re.escape(stem), re.escape(suffix)
        pattern = re.compile(f"{stem}{suffix}{_ROTATED}|{stem}{_ROTATED}{suffix}")
        if directory not in self._names:
            try:
                self._names[directory] = sorted(os.listdir(directory))
            except OSError:
                self._names[directory] = []
        return (os.path.join(directory, n) for n in self._names[directory] if pattern.fullmatch(n))


def unrotated(path: str) -> str:
    """Returns the path without the suffix of a rotated log."""
    return re.sub(_ROTATED + "$", "", path)


class Quiet:
    """Tracks since when files are unchanged, by the clock of this process: the times of files may come from other
    clocks.
    """

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._since: dict[str, tuple[Seen | None, float, float]] = {}
        """By path: as it was seen last, since when, and since when it changes."""

    def __call__(self, path: str, now: Seen | None) -> bool:
        """Returns whether a file has not changed for some time, or has changed all the time for too long."""
        clock = time.monotonic()
        seen, since, first = self._since.get(path, (now, clock, clock))
        if seen != now:
            calm = clock - since >= self._seconds
            since, first = clock, clock if calm else first
        self._since[path] = now, since, first
        old = now is not None and time.time_ns() - now.mtime_ns >= self._seconds * 1e9
        return old or clock - since >= self._seconds or clock - first >= LONGEST * self._seconds


class Look:
    """Finds the offset after another one. ``format_of`` returns the format of a path; ``growing`` says whether files
    may grow at all, ``keeps`` that rows of removed files remain valid, ``waits`` that the rest of a line may come. What
    was rewritten, removed, or cannot grow is accepted when it is ``quiet``.
    """

    def __init__(
        self,
        files: FileSet,
        format_of: Callable[[str], Format],
        *,
        growing: bool,
        keeps: bool,
        waits: bool,
        quiet: Quiet,
    ):
        self._files = files
        self._format_of = format_of
        self._growing = growing
        self._keeps = keeps
        self._waits = waits
        self._quiet = quiet
        self._ids: dict[str, Seen] = {}
        self.pending = False
        """Whether something was seen that is not accepted yet."""

    def grows(self, path: str) -> bool:
        return self._growing and self._format_of(path).grows(path)

    def first(self, seen: list[Seen]) -> Listed:
        """Returns the first offset, with everything that exists now."""
        files = tuple(self._enter(s, i, final=True) for i, s in enumerate(seen))
        return Listed(files, len(files))

    def next(self, before: Listed, seen: list[Seen]) -> Listed:
        self.pending = False
        here = {s.path: s for s in seen}
        found: dict[int, Entry] = {}
        used: set[str] = set()
        there = [e for e in before.files if not e.gone]
        for entry in there:
            now = here.get(entry.path) or self._files.find(entry.path)
            still = self._still(entry, now) if now is not None else None
            if still is not None:
                found[entry.index] = still
                used.add(still.path)
        for entry in there:
            moved = self._moved(entry, here, used) if entry.index not in found else None
            if moved is not None:
                found[entry.index] = moved
                used.add(moved.path)
        lost, rewrites = list(before.lost), before.rewrites
        for entry in before.files:
            if entry.index in found:
                continue
            now = here.get(entry.path) if entry.path not in used else None
            if entry.gone and now is None:
                found[entry.index] = entry
            elif entry.path not in used and not self._quiet(entry.path, now):
                self.pending = True
                found[entry.index] = entry
                used.add(entry.path)
            elif now is not None or not self._keeps:
                rewrites += 1
            elif entry.away:
                lost.append(entry.index)
            else:
                found[entry.index] = replace(entry, gone=True)
        files = [found[e.index] for e in before.files if e.index in found]
        while sum(e.gone for e in files) > MOST_GONE:
            first = next(e for e in files if e.gone)
            files.remove(first)
            lost.append(first.index)
        number = before.next
        for s in seen:
            if s.path in used:
                continue
            if not self.grows(s.path) and not self._is_quiet(s):
                self.pending = True
                continue
            files.append(self._enter(s, number, final=self._is_quiet(s)))
            number += 1
        return Listed(tuple(files), number, rewrites, before.kept, tuple(lost))

    def _is_quiet(self, seen: Seen) -> bool:
        return self._quiet(seen.path, seen)

    def _enter(self, seen: Seen, index: int, *, final: bool) -> Entry:
        entry = Entry(seen.path, seen.size, seen.mtime_ns, seen.id, index, 0, "")
        return self._read_on(entry, seen, final=final)

    def _read_on(self, entry: Entry, now: Seen, *, final: bool) -> Entry:
        """Returns the entry with what was added; a record without an end is included when it is ``final``."""
        if not self.grows(now.path):
            return replace(entry, **asdict(now), at=now.size)
        form = self._format_of(now.path)
        at = whole = form.complete(now.path, entry.at, now.size, final=False)
        if final:
            at = form.complete(now.path, entry.at, now.size, final=True)
            half = form.name == "jsonl" and at > whole and self._files.read(now.path, at - 1, 1) not in b"}"
            if half and self._waits:  # for an object: the rest must come
                at = whole
        if not final and at < now.size:
            self.pending = True
        return replace(entry, **asdict(now), at=at, print=self.print(now.path, at), open=at > whole)

    def _still(self, entry: Entry, now: Seen) -> Entry | None:
        """Returns the current entry, if the file is unchanged or has only grown."""
        if now == entry.seen:
            if entry.at < entry.size and self.grows(entry.path):
                return self._read_on(entry, now, final=self._is_quiet(now))
            return entry
        if not self.grows(now.path) or now.size < entry.at:
            return None
        if entry.at > SMALL and (now.id != entry.id or now.size == entry.size):
            return None
        if self.print(now.path, entry.at) != entry.print:
            return None
        if entry.open and now.size > entry.at:
            # Its last record is the same if it lacked nothing but its end.
            before, after = (self._files.read(now.path, at, 1) for at in (entry.at - 1, entry.at))
            if before in _ENDS or after not in _ENDS:
                return None
        return self._read_on(entry, now, final=self._is_quiet(now))

    def _moved(self, entry: Entry, here: dict[str, Seen], taken: set[str]) -> Entry | None:
        """Returns the entry under its new name."""
        if not entry.at:
            return None
        for now in self._others(entry, here, taken):
            if now.path == entry.path or now.path in taken or now.size < entry.at:
                continue
            if self.grows(now.path):
                same = self.print(now.path, entry.at) == entry.print
            else:
                same = (now.id, now.size, now.mtime_ns) == (entry.id, entry.size, entry.mtime_ns)
            if same:
                return replace(self._read_on(entry, now, final=True), away=now.path not in here)
        return None

    def _others(self, entry: Entry, here: dict[str, Seen], taken: set[str]) -> Iterator[Seen]:
        """Yields files that a file may have become."""
        if not self._ids:
            self._ids = {s.id: s for s in here.values()}
        if entry.id in self._ids:
            yield self._ids[entry.id]
        for path in self._files.older(entry.path):
            if path not in taken and (self._keeps or path in here):
                now = here.get(path) or self._files.find(path)
                if now is not None:
                    yield now

    def print(self, path: str, at: int) -> str:
        """Returns a fingerprint of the first bytes of a file."""
        digest = hashlib.blake2b(str(at).encode(), digest_size=12)
        if at <= SMALL:
            digest.update(self._files.read(path, 0, at))
        else:
            for i in range(_SAMPLES):
                digest.update(self._files.read(path, (at - _SAMPLE) * i // (_SAMPLES - 1), _SAMPLE))
        return digest.hexdigest()
