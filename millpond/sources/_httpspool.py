"""Files that hold what was fetched, by version: the newest few are kept."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

VERSIONS_KEPT = 3


class Spool:
    """A folder that goes with its maker. Picklable: a copy reads and writes the same folder."""

    def __init__(self) -> None:
        self._home: Path | None = None
        self._end: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_home": self._home, "_end": None}

    def scratch(self) -> Path:
        """A new folder for files that are no version yet."""
        if self._home is None or not self._home.is_dir():
            self._home = Path(tempfile.mkdtemp(prefix="millpond-http-"))
            self._end = weakref.finalize(self, shutil.rmtree, self._home, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=".new-", dir=self._home))

    def keep(self, scratch: Path, version: str) -> None:
        """Makes a scratch folder a version; the oldest ones go."""
        home = scratch.parent
        if (home / version).is_dir():
            shutil.rmtree(scratch)
            os.utime(home / version)
        else:
            os.replace(scratch, home / version)
        versions = [p for p in home.iterdir() if not p.name.startswith(".")]
        for old in sorted(versions, key=lambda p: p.stat().st_mtime_ns)[:-VERSIONS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def files(self, version: str) -> list[Path] | None:
        """The files of a version in their order; None if it is not kept."""
        if self._home is None or not (self._home / version).is_dir():
            return None
        return sorted((self._home / version).iterdir())

    def close(self) -> None:
        if self._end is not None:
            self._end()
        self._home = self._end = None
