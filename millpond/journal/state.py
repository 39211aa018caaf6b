"""Manages the state directory: its owner, its format, and who may write to it.

    format        "millpond 3"
    identity      which directory it is, for databases that store positions of several
    lock          flock, exclusive while an app runs, shared while others read; the writer's process id
    journal.db    the journal, and the files next to it; data/ contains the files that it names
    journal.rows  small commits that journal.db does not have yet
    pinned/       links to files that Spark reads

The lock is the operating system's and ends with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import uuid
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

from millpond.errors import StateCorrupt, StateForeign, StateLocked, StateUnwritable

FORMAT = "millpond 3\n"
_EARLIER = ("millpond 1\n", "millpond 2\n")
"""The formats before streams had Parquet files, and before small commits had a log. They are read, and become the
newest one with the first app that writes.
"""


class StateDirectory:
    """Represents a state directory, created if necessary, and locked until ``close``.

    Without a path it is a temporary one that ``close`` removes, and nothing in it has to be durable. Raises StateLocked
    (naming the process), StateForeign or StateUnwritable.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, read_only: bool = False):
        self.durable = path is not None
        self.read_only = read_only
        if path is None:
            self.path = Path(tempfile.mkdtemp(prefix="millpond-"))
            self._remove = weakref.finalize(self, shutil.rmtree, str(self.path), ignore_errors=True)
        else:
            self.path = Path(path).absolute()
        self._lock: int | None = None
        try:
            self._open()
        except OSError as e:
            self.close()
            raise StateUnwritable(
                f'the state directory "{self.path}" cannot be used: {e.strerror or e}',
                hint="check that it exists, its owner and its mode",
            ) from e
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        if self.read_only:
            if not (self.path / "format").exists():
                raise StateForeign(
                    f'"{self.path}" is not a state directory', hint="run the app with --state first"
                )
        else:
            self._create()
        self._lock = self._take_lock()
        self._check_format()
        self.identity = self._identity()

    def _create(self) -> None:
        made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in made:
            sync_directory(path.parent)
        present = set(os.listdir(self.path))
        if present - {"lock", "format.new"} and "format" not in present:
            raise StateForeign(
                f'"{self.path}" is not empty and is not a state directory of Millpond',
                hint="name an empty or a new directory",
            )

    def _take_lock(self) -> int:
        flags = os.O_RDONLY if self.read_only else os.O_RDWR | os.O_CREAT
        descriptor = os.open(self.path / "lock", flags | os.O_CLOEXEC, 0o600)
        try:
            kind = fcntl.LOCK_SH if self.read_only else fcntl.LOCK_EX
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            who = f"process {owner}" if owner else "another process, which reads it"
            raise StateLocked(
                f'the state directory "{self.path}" is in use by {who}',
                hint=f"stop it first (kill {owner}), or name another directory"
                if owner
                else "wait until it ends, or name another directory",
            ) from None
        if not self.read_only:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return descriptor

    def _check_format(self) -> None:
        file = self.path / "format"
        if not file.exists() and not self.read_only:
            self.path.chmod(0o700)
            self._write_once(file, FORMAT)
        found = file.read_text(errors="replace")
        if found in _EARLIER:
            if not self.read_only:
                self._write_once(file, FORMAT)
        elif found != FORMAT:
            raise StateForeign(
                f'the state directory "{self.path}" has the format "{found.strip()[:40]}",'
                f' not "{FORMAT.strip()}"',
                hint="use the version of Millpond that wrote it, or name another directory",
            )

    def _identity(self) -> str:
        file = self.path / "identity"
        if not file.exists():
            if self.read_only:
                return ""
            name = uuid.uuid4().hex
            self._write_once(file, f"{name} {_sum(name)}\n")
        name, _, check = file.read_text(errors="replace").strip().partition(" ")
        if check != _sum(name):
            raise StateCorrupt(f'"{file}" is damaged', hint="restore the state directory from a copy")
        return name

    def _write_once(self, file: Path, text: str) -> None:
        """Writes the file, completely or not at all."""
        scratch = file.with_name(f"{file.name}.new")
        scratch.write_text(text)
        sync_file(scratch)
        scratch.rename(file)
        sync_directory(self.path)

    def close(self) -> None:
        """Releases the lock, and removes a temporary directory. A second call does nothing."""
        if self._lock is not None:
            if not self.read_only:
                os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None
        if not self.durable:
            self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def sync_file(path: Path) -> None:
    """Waits until the file's content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Waits until the directory's names are on the disk."""
    sync_file(path)
