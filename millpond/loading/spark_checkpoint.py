"""Reads the checkpoint of a Structured Streaming job: its query, its batches and how far each has read.

A batch is planned when it is in ``offsets``, and finished when it is in ``commits`` too. The files that a file source
has read are in ``sources/0``: a file for each of its offsets, of which every tenth contains all before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from millpond.connectors.job_progress import FilesProgress, JobProgress, ReadFile, TopicsProgress
from millpond.errors import AdoptionRefused

_VERSION = "v1"
_FILE_OFFSET = "logOffset"
_COMPACT = ".compact"


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    """Represents a checkpoint. ``query`` identifies the job; ``planned`` is its last batch, and ``finished`` the last
    one that has ended: -1 if none has.
    """

    path: Path
    query: str
    planned: int
    finished: int

    @classmethod
    def read(cls, path: Path) -> SparkCheckpoint:
        """Reads a checkpoint of a job over one source, without state. Raises AdoptionRefused if it is none."""
        try:
            query = str(json.loads((path / "metadata").read_text(encoding="utf-8"))["id"])
        except (OSError, ValueError, KeyError, TypeError):
            raise AdoptionRefused(
                f'"{path}" is no checkpoint of Structured Streaming: it has no file "metadata"',
                hint="name the folder that is the job's 'checkpointLocation', on this machine",
            ) from None
        if (path / "state").exists():
            raise AdoptionRefused(
                f'the job of "{path}" has state, for an aggregate, a join or distinct rows, which cannot be read',
                hint="let the app read everything again into a new table",
            )
        planned, finished = _last(path / "offsets"), _last(path / "commits")
        if planned < 0:
            raise AdoptionRefused(
                f'the job of "{path}" has read nothing: its folder "offsets" is empty',
                hint="start the app without it: millpond run",
            )
        if not finished <= planned <= finished + 1:
            raise AdoptionRefused(
                f'"{path}" has batch {planned} in "offsets" and batch {finished} in "commits": only the last batch '
                "may be unfinished",
                hint="let the job run until its last batch is finished",
            )
        if finished >= 0:
            _lines(path / "commits" / str(finished))
        return cls(path, query, planned, finished)

    def progress(self, batch: int) -> JobProgress:
        """Returns how far the job had read after a batch; -1 is its beginning."""
        end = self._end(max(batch, 0))
        if _FILE_OFFSET in end:
            files = () if batch < 0 else tuple(self._files(int(end[_FILE_OFFSET])))
            return FilesProgress(files)
        if batch < 0:
            end = self._beginning()
        if end and all(isinstance(places, dict) for places in end.values()):
            return TopicsProgress(
                {topic: {str(p): int(at) for p, at in places.items()} for topic, places in end.items()}
            )
        raise AdoptionRefused(
            f'the job of "{self.path}" has read neither topics nor files: its offset is '
            f"{json.dumps(end)[:200]}"
        )

    def _end(self, batch: int) -> dict[str, Any]:
        """Returns the offset of the source after a batch."""
        _, *ends = _lines(self.path / "offsets" / str(batch))
        if len(ends) != 1:
            raise AdoptionRefused(
                f'the job of "{self.path}" reads {len(ends)} sources, and only one can be taken over',
                hint="let the app read everything again into a new table",
            )
        return _parsed(self.path / "offsets" / str(batch), ends[0])

    def _beginning(self) -> dict[str, Any]:
        """Returns the offset at which a job over topics has begun."""
        file = self.path / "sources" / "0" / "0"
        return _parsed(file, "".join(_lines(file)))

    def _files(self, until: int) -> Iterator[ReadFile]:
        """Yields each file that was read up to an offset."""
        folder = self.path / "sources" / "0"
        whole = max((n for n in _numbers(folder, _COMPACT)), default=-1)
        names = [f"{whole}{_COMPACT}"] if whole >= 0 else []
        names += [str(n) for n in range(whole + 1, until + 1)]
        found: dict[str, ReadFile] = {}
        for name in names:
            for line in _lines(folder / name):
                entry = _parsed(folder / name, line)
                if entry["batchId"] <= until:
                    path = _local(entry["path"])
                    found.pop(path, None)
                    found[path] = ReadFile(path, int(entry["timestamp"]))
        yield from found.values()


def _last(folder: Path) -> int:
    return max(_numbers(folder), default=-1)


def _numbers(folder: Path, suffix: str = "") -> Iterator[int]:
    """Yields the numbers that are names of files."""
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.name.endswith(suffix) and (name := file.name.removesuffix(suffix)).isdecimal():
            yield int(name)


def _lines(file: Path) -> list[str]:
    """Returns the lines of a file of a checkpoint, after the one with its version."""
    try:
        text = file.read_text(encoding="utf-8").lstrip("\0")
    except (OSError, ValueError):
        raise AdoptionRefused(
            f'the file "{file}" of the checkpoint is missing, or cannot be read',
            hint="let the job run for one more batch, or bring the whole folder back",
        ) from None
    version, _, rest = text.partition("\n")
    if version.strip() != _VERSION:
        raise AdoptionRefused(
            f'the file "{file}" of the checkpoint has version "{version.strip()[:40]}", and only "{_VERSION}" is known',
            hint="newer and older versions of Spark may write others",
        )
    return [line for line in rest.splitlines() if line.strip()]


def _parsed(file: Path, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise AdoptionRefused(
            f'the file "{file}" of the checkpoint has an offset of neither topics nor files: {line[:200]}'
        )
    return found


def _local(uri: str) -> str:
    """Returns the path of a file of this machine."""
    scheme, found, rest = uri.partition(":")
    if not found:
        return unquote(uri)
    if scheme != "file":
        raise AdoptionRefused(f'the job has read "{uri}", and only files of this machine can be taken over')
    return unquote("/" + rest.lstrip("/"))
