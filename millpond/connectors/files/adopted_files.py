"""Makes the offset of a source from the files that a job of another system has read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from millpond.connectors.files.listing import Listed, Look, Seen
from millpond.connectors.job_progress import FilesProgress, JobProgress
from millpond.errors import AdoptionRefused


def adopted(uri: str, look: Look, seen: Sequence[Seen], progress: JobProgress) -> Listed:
    """Returns an offset with the files of the job, each as read to its end. ``seen`` are the files of the source; what
    was removed since is not in it.
    """
    if not isinstance(progress, FilesProgress):
        raise AdoptionRefused(f'the job has read {progress}, and the statement reads "{uri}"')
    here = {os.path.realpath(s.path): s for s in seen}
    files: list[Seen] = []
    for read in progress.files:
        now = here.get(os.path.realpath(read.path))
        if now is None and os.path.exists(read.path):
            raise AdoptionRefused(
                f'the job has read "{read.path}", and "{uri}" does not select it',
                hint="let the statement read the same files",
            )
        if now is None:
            continue
        if now.mtime_ns // 1_000_000 != read.modified:
            raise AdoptionRefused(
                f'"{read.path}" has changed since the job has read it: nobody knows which of its rows are in the table',
                hint="bring the file back as it was, with its time, or remove it",
            )
        files.append(now)
    if progress.files and not files:
        raise AdoptionRefused(
            f'none of the {len(progress.files):,} files that the job has read is among those of "{uri}"',
            hint="let the statement read the same files",
        )
    return replace(look.first(files), kept=len(files) < len(progress.files))
