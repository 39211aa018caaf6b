"""Writes files of this machine so that they survive a crash."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from millpond.connectors.files.manifest import Storage, exists_already
from millpond.errors import AccessRefused, ConfigurationIssue, ConnectionLost

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_WRONG = (errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class LocalStorage(Storage):
    """Represents the file system of this machine."""

    def read(self, path: str) -> bytes | None:
        with _asking(path):
            try:
                with open(path, "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def write(self, path: str, data: bytes) -> None:
        with _asking(path):
            folder = os.path.dirname(path)
            _make(folder)
            fresh = os.path.join(folder, f".new-{uuid.uuid4().hex}")
            try:
                number = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                with open(number, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(fresh, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(fresh)
                raise
            _sync(folder)

    def move(self, source: str, target: str, *, replaces: bool) -> bool:
        with _asking(target):
            _make(os.path.dirname(target))
            try:
                os.replace(source, target) if replaces else _give_name(source, target)
            except FileNotFoundError:
                return False
            _sync(os.path.dirname(target))
            return True

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def names(self, folder: str) -> list[str]:
        with _asking(folder):
            try:
                return os.listdir(folder)
            except FileNotFoundError:
                return []

    def remove(self, path: str) -> None:
        with _asking(path), suppress(FileNotFoundError):
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)


def _give_name(source: str, target: str) -> None:
    """Renames a file; another one of that name is never replaced."""
    try:
        os.link(source, target)
    except FileExistsError:
        if not os.path.samefile(source, target):  # else a kill came after the link
            raise exists_already(target) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise exists_already(target) from None
        os.replace(source, target)
        return
    os.unlink(source)


def _make(folder: str) -> None:
    """Creates a folder, and those above it, so that they survive a crash."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for new in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(new)
        _sync(os.path.dirname(new))


def _sync(folder: str) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def _asking(path: str) -> Iterator[None]:
    """Translates errors of the file system."""
    try:
        yield
    except OSError as error:
        what = f'"{path}" cannot be written: {error.strerror or error}'
        if error.errno in _REFUSED:
            raise AccessRefused(what, hint="check who may write there") from None
        if error.errno in _WRONG:
            raise ConfigurationIssue(what, hint="name a directory") from None
        raise ConnectionLost(what, hint="check the disk: it may be full") from None
