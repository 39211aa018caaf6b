"""Locates the socket of a running app: in its state directory, however long the path."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "query.sock"
_LONGEST = 100
"""The longest path, in bytes, that every system accepts for a Unix socket."""


@contextmanager
def address_in(state: Path) -> Iterator[str]:
    """Returns an address for bind and connect; long paths use an open descriptor of the directory."""
    path = os.fspath(state.absolute() / NAME)
    if len(os.fsencode(path)) <= _LONGEST:
        yield path
        return
    descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)


def connect(state: Path) -> socket.socket | None:
    """Returns a connection to the app that runs on a state directory; None if none runs."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address_in(state) as address:
            found.connect(address)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        found.close()
        return None
    except BaseException:
        found.close()
        raise
    return found
