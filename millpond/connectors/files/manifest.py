"""Makes files appear whole, each once, together with the position of the query that writes them.

A batch is written to hidden files first. Then the manifest of the query, one small file that is replaced as a whole,
names them, their final names, and the position: from there on the batch counts. Then they get their final names. A
start completes what a manifest names, and removes hidden files that it does not.
"""

from __future__ import annotations

import hashlib
import json
import logging
import posixpath
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from millpond import faults
from millpond.changes import Position
from millpond.errors import AlreadyExists, ConfigurationIssue, StateCorrupt

T = TypeVar("T")
_log = logging.getLogger(__name__)

HIDDEN = ".millpond"
"""The folder beside the files that has the manifests. Sources, Spark and DuckDB leave out names that begin so."""
_MANIFEST = ".manifest.json"
_ROWS = ".rows"
MERGED = 64
"""Hidden files of rows that wait which become one, so that a manifest stays small."""


class Storage(ABC):
    """Represents where files are. Paths have ``/``. Its methods raise errors of Millpond."""

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """Returns what a file contains; None if it does not exist."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Writes a file, whole or not at all, in place of one that exists; it is durable afterwards."""

    @abstractmethod
    def move(self, source: str, target: str, *, replaces: bool) -> bool:
        """Gives a file its final name; returns False if the source does not exist. Raises AlreadyExists if there is
        another file, which it does not replace.
        """

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Returns the names of files in a folder; none if it does not exist."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Removes a file, or an empty folder, if it exists."""


class Move(NamedTuple):
    """Says which final path, below the root, a hidden file gets."""

    hidden: str
    path: str
    replaces: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contains what counts: ``moves`` are files that may not have their final names yet, ``waiting`` those with the
    rows of ``batches`` batches that wait for a file, since ``since``, from the batch ``first`` on; ``owner`` identifies
    who has opened it last, and ``run`` distinguishes files from those of an earlier query with the same names.
    """

    owner: str
    position: Position | None = None
    moves: tuple[Move, ...] = ()
    waiting: tuple[str, ...] = ()
    since: float = 0.0
    size: int = 0
    batches: int = 0
    first: int | None = None
    run: int = 0

    def text(self) -> bytes:
        at = self.position
        noted = None if at is None else at.parts
        return json.dumps(
            {
                "owner": self.owner,
                "position": noted,
                "moves": self.moves,
                "waiting": self.waiting,
                "since": self.since,
                "size": self.size,
                "batches": self.batches,
                "first": self.first,
                "run": self.run,
            }
        ).encode()

    @classmethod
    def of(cls, text: bytes, path: str) -> Manifest:
        """Returns what the file at ``path`` contains. It names only files of its own folder, and paths below the root:
        others may be able to write there.
        """
        try:
            found: dict[str, Any] = json.loads(text)
            at = found["position"]
            made = cls(
                str(found["owner"]),
                None if at is None else Position(*at),
                tuple(Move(str(a), str(b), bool(c)) for a, b, c in found["moves"]),
                tuple(str(name) for name in found["waiting"]),
                float(found["since"]),
                int(found["size"]),
                int(found["batches"]),
                None if found["first"] is None else int(found["first"]),
                int(found["run"]),
            )
        except (ValueError, KeyError, TypeError):
            raise StateCorrupt(f'manifest "{path}" is damaged') from None
        hidden = [*made.waiting, *(move.hidden for move in made.moves)]
        if not all(map(_is_hidden, hidden)) or not all(_is_below(move.path) for move in made.moves):
            raise StateCorrupt(f'manifest "{path}" is damaged: it names files that are not its own')
        return made


def _is_hidden(name: str) -> bool:
    """Returns whether a name is one of the folder of a manifest."""
    return name.startswith(".") and name not in (".", "..", _MANIFEST) and not any(c in name for c in "/\\\0")


def _is_below(path: str) -> bool:
    """Returns whether a path leads to a file below the root, and not to our own."""
    parts = path.split("/")
    return "\0" not in path and parts[0] != HIDDEN and not any(part in ("", ".", "..") for part in parts)


class Publisher:
    """Publishes files below ``root`` for the query ``name``. If one was opened ``after`` another, nobody else may have
    opened it in between.
    """

    def __init__(self, storage: Storage, root: str, name: str, after: str | None = None):
        self._storage = storage
        self._root = root
        self.folder = posixpath.join(root, HIDDEN, hashlib.sha256(name.encode()).hexdigest()[:24])
        self._path = posixpath.join(self.folder, _MANIFEST)
        self._made = 0
        before = self._stored() or Manifest("")
        if after is not None and before.owner not in ("", after):
            raise _taken_over()
        self._move(before.moves, again=True)
        self.now = replace(before, owner=uuid.uuid4().hex, moves=())
        # From here on one who opened it before writes nothing more.
        storage.write(self._path, self.now.text())
        for other in set(storage.names(self.folder)) - {_MANIFEST, *self.now.waiting}:
            # Those of the last owner may be named by it in this moment: the next start removes them.
            if not before.owner or not other.startswith(f".{before.owner}"):
                storage.remove(posixpath.join(self.folder, other))

    def publish(
        self,
        files: Iterable[tuple[T, bytes]],
        position: Position | None,
        path: Callable[[T, int], str],
        *,
        replaces: bool = False,
        only: bool = False,
        waited: bool = False,
    ) -> None:
        """Publishes files with the final ``path`` of each, which depends on the run. They are of the rows that
        ``waited``, or do not touch these. They replace others, or are new; if there can be ``only`` one of the name,
        another one is an error.
        """
        faults.reach("sink: begun")
        made = []
        for file, data in files:
            hidden = self._fresh()
            self._storage.write(posixpath.join(self.folder, hidden), data)
            made.append((hidden, file))
        self.name(made, position, path, replaces=replaces, only=only, waited=waited)

    def name(
        self,
        made: Sequence[tuple[str, T]],
        position: Position | None,
        path: Callable[[T, int], str],
        *,
        replaces: bool = False,
        only: bool = False,
        waited: bool = False,
    ) -> None:
        """Does the same as ``publish`` with hidden files that are there, below ``folder``, named by the owner."""
        faults.reach("sink: produced")
        run = self.now.run
        while not replaces and any(self._exists(path(file, run)) for _, file in made):
            if only:
                raise exists_already(path(made[0][1], run))
            run += 1
        moves = tuple(Move(hidden, path(file, run), replaces) for hidden, file in made)
        before = self.now
        kept = Manifest(before.owner) if waited else before
        self._commit(replace(kept, position=position or before.position, moves=moves, run=run))
        faults.reach("files: named")
        self._move(moves)
        for name in before.waiting if waited else ():
            self._storage.remove(posixpath.join(self.folder, name))

    def keep(self, data: bytes, position: Position | None, now: float) -> None:
        """Stores rows that wait for a file."""
        before, gone = self.now, list[str]()
        names = [*before.waiting, self._fresh(f"{_ROWS}-0-")]
        self._storage.write(posixpath.join(self.folder, names[-1]), data)
        level = 0
        while len(last := [n for n in names[-MERGED:] if n.startswith(f"{_ROWS}-{level}-")]) == MERGED:
            level += 1
            merged = self._fresh(f"{_ROWS}-{level}-")
            self._storage.write(posixpath.join(self.folder, merged), b"".join(map(self._read, last)))
            names[-MERGED:] = [merged]
            gone += last
        first = position.batch if position is not None else None
        self._commit(
            replace(
                before,
                position=position or before.position,
                moves=(),
                waiting=tuple(names),
                since=before.since if before.waiting else now,
                size=before.size + len(data),
                batches=before.batches + 1,
                first=first if before.first is None else before.first,
            )
        )
        for name in gone:
            self._storage.remove(posixpath.join(self.folder, name))

    def kept(self) -> list[bytes]:
        """Returns the rows that wait, in their order."""
        return [self._read(name) for name in self.now.waiting]

    def forget(self) -> None:
        """Removes everything but the published files, unless another process has opened it since."""
        stored = self._stored()
        if stored is None or stored.owner != self.now.owner:
            return
        for name in self._storage.names(self.folder):
            self._storage.remove(posixpath.join(self.folder, name))
        self._storage.remove(self.folder)

    def _fresh(self, lead: str = ".") -> str:
        self._made += 1
        return f"{lead}{self.now.owner}-{self._made}"

    def _exists(self, path: str) -> bool:
        return self._storage.exists(posixpath.join(self._root, path))

    def _read(self, name: str) -> bytes:
        data = self._storage.read(posixpath.join(self.folder, name))
        if data is None:
            raise StateCorrupt(
                f'"{posixpath.join(self.folder, name)}" is gone: it had rows that wait for a file'
            )
        return data

    def _stored(self) -> Manifest | None:
        text = self._storage.read(self._path)
        return None if text is None else Manifest.of(text, self._path)

    def _check_owner(self) -> None:
        stored = self._stored()
        if stored is None or stored.owner != self.now.owner:
            raise _taken_over()

    def _commit(self, manifest: Manifest) -> None:
        self._check_owner()
        self._storage.write(self._path, manifest.text())
        self._check_owner()
        self.now = manifest

    def _move(self, moves: Sequence[Move], *, again: bool = False) -> None:
        """Gives files their final names; if that may have been done before, ``again``, hidden ones may be gone."""
        for hidden, path, replaces in moves:
            source, target = posixpath.join(self.folder, hidden), posixpath.join(self._root, path)
            if self._storage.move(source, target, replaces=replaces) or (
                again and self._storage.exists(target)
            ):
                continue
            if not again:
                raise StateCorrupt(f'"{source}" is gone: it had rows of "{target}"')
            _log.warning('"%s" was published, and is gone: somebody has removed it', target)


def exists_already(path: str) -> AlreadyExists:
    return AlreadyExists(
        f'file "{path}" already exists, and is not of this query',
        hint="write to another directory, or give the files another name with 'file.name'",
    )


def _taken_over() -> ConfigurationIssue:
    return ConfigurationIssue(
        "another process writes the files of this query",
        hint="end one of the two: both use the same state directory, or a copy of it. START QUERY goes on here",
    )
