"""Registers the apps that this user runs: one small file for each, locked while its process runs.

A file contains the path of the state directory, or nothing while the app still loads its tables.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import Self

from millpond.errors import StateUnwritable


class Registration:
    """Registers this process, until ``close``."""

    def __init__(self) -> None:
        directory = _directory()
        self._path = directory / f"{os.getpid()}.app"
        scratch = directory / f".{os.getpid()}.new"
        self._descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        scratch.rename(self._path)

    def ready(self, state: Path) -> None:
        """Records that the app accepts queries now."""
        os.pwrite(self._descriptor, os.fsencode(state), 0)

    def close(self) -> None:
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


def running_apps() -> list[Path | None]:
    """Returns the state directories of this user's running apps; None for one that still loads."""
    found: list[Path | None] = []
    for file in sorted(_directory().glob("*.app")):
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                file.unlink(missing_ok=True)  # its process has ended
            except BlockingIOError:
                state = os.read(descriptor, 65536)
                found.append(Path(os.fsdecode(state)) if state else None)
            finally:
                os.close(descriptor)
    return found


def _directory() -> Path:
    """Returns a directory that nobody else can write to."""
    path = Path(tempfile.gettempdir()) / f"millpond-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        about = path.lstat()
    except OSError as error:
        raise StateUnwritable(
            f'the directory "{path}" cannot be made: {error.strerror}', hint="set TMPDIR"
        ) from None
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise StateUnwritable(
            f'"{path}" is not a directory that only you can write to', hint="remove it, or set TMPDIR"
        )
    return path
