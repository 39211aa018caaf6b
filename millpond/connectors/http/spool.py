"""Stores fetched data in files, by version: only the newest few remain."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import uuid
import weakref
from pathlib import Path
from typing import Any

from millpond.changes import Offset

VERSIONS_KEPT = 3


class Spool:
    """Represents a folder that is removed with its creator. Picklable: a copy reads and writes the same folder."""

    def __init__(self) -> None:
        self._home: Path | None = None
        self._end: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_home": self._made(), "_end": None}

    def scratch(self) -> Path:
        """Creates a folder for files that are not a version yet."""
        return Path(tempfile.mkdtemp(prefix=".new-", dir=self._made()))

    def _made(self) -> Path:
        if self._home is None or not self._home.is_dir():
            self._home = Path(tempfile.mkdtemp(prefix="millpond-http-"))
            self._end = weakref.finalize(self, shutil.rmtree, self._home, ignore_errors=True)
        return self._home

    def keep(self, scratch: Path, version: str) -> None:
        """Makes a scratch folder a version; the oldest ones are removed. Others may do the same at the same time."""
        home = scratch.parent
        try:
            os.replace(scratch, home / version)
        except OSError:
            os.utime(home / version)
        ages = {p: _age(p) for p in home.iterdir() if not p.name.startswith(".")}
        for old in sorted(ages, key=lambda p: ages[p])[:-VERSIONS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def files(self, version: str) -> list[Path] | None:
        """Returns the files of a version in their order; None if it is not stored."""
        if self._home is None or not (self._home / version).is_dir():
            return None
        return sorted((self._home / version).iterdir())

    def note(self, newest: Offset) -> None:
        """Records the current response, for all users of this folder."""
        home = self._made()
        made = home / f".noted-{uuid.uuid4().hex}"
        made.write_text(json.dumps({"at": time.time(), "offset": newest}))
        os.replace(made, home / ".newest")

    def noted(self) -> tuple[float, Offset] | None:
        """Returns the last response, and its time."""
        if self._home is None:
            return None
        try:
            found = json.loads((self._home / ".newest").read_text())
        except FileNotFoundError:
            return None
        return found["at"], found["offset"]

    def close(self) -> None:
        if self._end is not None:
            self._end()
        self._home = self._end = None


def _age(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
