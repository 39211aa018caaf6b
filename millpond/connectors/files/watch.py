"""Watches files: the file system reports changes, or files are polled if it does not."""

from __future__ import annotations

import glob
import logging
import os
import threading
from collections.abc import Iterator

log = logging.getLogger("millpond")
LONGEST = 1000
"""Milliseconds after which files are checked although nothing was reported."""
_STEP = 20
"""Milliseconds without a further change before changes are reported."""


def watch(path: str, interval: float, stop: threading.Event) -> Iterator[None]:
    """Yields when a file, or one in a directory or of a pattern, may have changed; ``interval`` is how often to poll if
    nothing is reported.
    """
    while not stop.is_set():
        directory, recursive = _above(path)
        try:
            yield from _notified(directory, recursive, stop)
        except (
            OSError,
            RuntimeError,
        ) as error:  # a network file system, no inotify handle left, or removed
            log.debug("changes in %s are not reported: %s", directory, error)
            if not stop.wait(interval):
                yield


def _notified(directory: str, recursive: bool, stop: threading.Event) -> Iterator[None]:
    from watchfiles import watch as changes

    for _ in changes(
        directory,
        watch_filter=None,
        debounce=50,
        step=_STEP,
        stop_event=stop,
        rust_timeout=LONGEST,
        yield_on_timeout=True,
        raise_interrupt=False,
        recursive=recursive,
    ):
        yield
        if not os.path.isdir(directory):
            return


def _above(path: str) -> tuple[str, bool]:
    """Returns the directory to watch, and whether to include its subdirectories."""
    if os.path.isdir(path):
        return path, False
    directory = os.path.dirname(path)
    recursive = False
    while (glob.has_magic(directory) or "{" in directory) and directory != os.path.dirname(directory):
        directory, recursive = os.path.dirname(directory), True
    return directory, recursive or "**" in path
