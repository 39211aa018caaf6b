"""Compacts the small files of a Delta table, and removes files that no version needs any more."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from millpond.connectors.delta.client import explained
from millpond.errors import ConnectionLost, without_passwords

if TYPE_CHECKING:
    from deltalake import DeltaTable

T = TypeVar("T")
_TRIES = 5
"""How often a commit is tried that others' commits come before."""
_LARGE = 100 << 20
"""The size that OPTIMIZE gives to files, in bytes."""
_ROW_GROUP = 131_072
"""The rows that a lookup reads of a file at the least."""
_FIRST, _EVERY = 600.0, 86_400.0
"""The seconds after which VACUUM runs first while a table is open, and between two runs."""


class Care:
    """Says when a table needs care: if OPTIMIZE would make so many files fewer, and VACUUM once a day. 0 is never."""

    def __init__(self, values: Mapping[str, Any]):
        self._files = int(values.get("optimize.files", 16))
        retention = values.get("vacuum.retention")
        self.retention = None if retention is None else math.ceil(retention / 3600)
        """The hours that VACUUM leaves, unless the Delta table decides."""
        self._left = 0
        self._vacuum_at = time.monotonic() + _FIRST

    def should_optimize(self, files: pa.Table) -> bool:
        return bool(self._files) and spare_files(files) >= self._files + self._left

    def optimized(self, files: pa.Table) -> None:
        """Records what is left after OPTIMIZE, which it could not compact."""
        self._left = spare_files(files)

    def should_vacuum(self) -> bool:
        """Returns whether VACUUM is due, once for each time that it is."""
        if time.monotonic() < self._vacuum_at:
            return False
        self._vacuum_at = time.monotonic() + _EVERY
        return True


def spare_files(files: pa.Table) -> int:
    """Returns how many files fewer there would be after OPTIMIZE; files of several partitions stay apart."""
    parts = [n for n in files.column_names if n.startswith("partition.")]
    small: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for file in files.select(["size_bytes", *parts]).to_pylist():
        if file["size_bytes"] < _LARGE:
            small[tuple(file[p] for p in parts)].append(file["size_bytes"])
    return sum(len(sizes) - -(-sum(sizes) // _LARGE) for sizes in small.values())


def optimize(table: DeltaTable, place: str) -> pa.Table:
    """Writes small files together, as one commit, again if another commit came before."""
    from deltalake import WriterProperties

    written = WriterProperties(max_row_group_size=_ROW_GROUP)
    done = _repeated(
        table, place, lambda: table.optimize.compact(target_size=_LARGE, writer_properties=written)
    )
    sizes = [json.loads(done[name])["totalSize"] for name in ("filesRemoved", "filesAdded")]
    return pa.table(
        {
            "version": pa.array([table.version()], pa.int64()),
            "files_removed": pa.array([done["numFilesRemoved"]], pa.int64()),
            "files_added": pa.array([done["numFilesAdded"]], pa.int64()),
            "bytes_removed": pa.array([sizes[0]], pa.int64()),
            "bytes_added": pa.array([sizes[1]], pa.int64()),
        }
    )


def vacuum(table: DeltaTable, place: str, hours: int | None, held: Collection[int]) -> pa.Table:
    """Removes files that no version of the last hours has, nor one of those that readers hold. Without hours the
    property ``delta.deletedFileRetentionDuration`` of the table counts, which is 7 days by default.
    """
    gone = _repeated(
        table,
        place,
        lambda: table.vacuum(
            hours, dry_run=False, enforce_retention_duration=hours is None, keep_versions=sorted(held)
        ),
    )
    return pa.table(
        {
            "version": pa.array([table.version()], pa.int64()),
            "files_unused": pa.array([len(gone)], pa.int64()),
        }
    )


def _repeated(table: DeltaTable, place: str, work: Callable[[], T]) -> T:
    from deltalake.exceptions import CommitFailedError

    failed = ""
    with explained(place):
        for _ in range(_TRIES):
            table.update_incremental()
            try:
                return work()
            except CommitFailedError as error:
                failed = str(error).strip().partition("\n")[0]
    raise ConnectionLost(
        f'Delta table "{without_passwords(place)}": others change the same files: {failed}',
        hint="try again when they are done",
    )
