"""Stores spilled rows of a table: Arrow IPC files in a directory of its own.

The directory is removed with the table. One that a killed process left is recognised by its lock, which nobody holds,
and removed by the next table that uses the place.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import StateCorrupt, StateUnwritable

_PREFIX = "millpond-spill-"
_LOCK = "lock"
_FILLED = 1 << 20
"""Numbers that are filled in before their pages are released."""


class SpillFile:
    """Stores one batch of rows. The file is removed with the object."""

    __slots__ = ("__weakref__", "_path", "size")

    def __init__(self, path: Path):
        self._path = path
        self.size = path.stat().st_size
        weakref.finalize(self, _remove, str(path))

    def read(self, columns: Sequence[int] | None = None) -> pa.Table:
        """Returns the rows, or these columns of them."""
        options = pa.ipc.IpcReadOptions(included_fields=None if columns is None else list(columns))
        try:
            with pa.OSFile(str(self._path)) as file, pa.ipc.open_file(file, options=options) as reader:
                return reader.read_all()
        except (OSError, pa.ArrowException) as e:
            raise StateCorrupt(
                f'rows that were spilled to "{self._path}" cannot be read: {e}',
                hint="start the app again: the journal has them",
            ) from e


class Shelf:
    """Manages the files of one table."""

    def __init__(self, parent: Path | None, compression: str):
        try:
            if parent is not None:
                parent.mkdir(parents=True, exist_ok=True)
                _sweep(parent)
            self.path, lock = _directory(parent)
        except OSError as e:
            raise StateUnwritable(
                f'rows cannot be spilled to "{parent}": {e.strerror or e}', hint="name another 'spill.path'"
            ) from e
        self._close = weakref.finalize(self, _closed, str(self.path), lock)
        self._options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)

    def write(self, rows: pa.RecordBatch) -> SpillFile:
        """Writes the rows. Raises OSError; then no file is left."""
        path = self.path / f"{uuid.uuid4().hex}.arrow"
        try:
            with (
                pa.OSFile(str(path), "wb") as file,
                pa.ipc.new_file(file, rows.schema, options=self._options) as writer,
            ):
                writer.write_batch(rows)
            pa.default_memory_pool().release_unused()
            return SpillFile(path)
        except BaseException:
            _remove(str(path))
            raise

    def nameless(self) -> int:
        """Opens a file without a name, which is removed when it is closed. Raises OSError."""
        file, name = tempfile.mkstemp(dir=self.path)
        os.unlink(name)
        return file

    def slots(self, size: int, fill: int) -> npt.NDArray[np.int64]:
        """Returns so many numbers in a memory-mapped file: the kernel reclaims their pages when it needs the memory.
        Raises OSError.
        """
        file = self.nameless()
        try:
            os.posix_fallocate(file, 0, size * 8)
            mapped = mmap.mmap(file, size * 8)
        finally:
            os.close(file)
        numbers: npt.NDArray[np.int64] = np.ndarray((size,), np.int64, mapped)
        for start in range(0, size, _FILLED):
            numbers[start : start + _FILLED] = fill
            mapped.madvise(mmap.MADV_DONTNEED)
        return numbers

    def close(self) -> None:
        self._close()


def _directory(parent: Path | None) -> tuple[Path, int]:
    """Creates a directory of our own, with its lock. Another process may treat it as abandoned, until it is locked."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with suppress(FileNotFoundError):
            lock = _locked(path)
            if lock is not None:
                return path, lock


def _locked(path: Path) -> int | None:
    """Returns the lock of a directory, if nobody has it."""
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _sweep(parent: Path) -> None:
    """Removes what killed processes left."""
    for path in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            lock = _locked(path)
            if lock is not None:
                _closed(str(path), lock)


def _closed(path: str, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
