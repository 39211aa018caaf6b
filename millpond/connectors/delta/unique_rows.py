"""Checks that no two rows of a version have the same key."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from millpond.connectors.delta.base_version import BaseVersion
from millpond.errors import BadData
from millpond.records.outgoing import to_rows


def check_unique(version: BaseVersion, key: Sequence[str], what: str) -> None:
    """Raises BadData if two rows have the same key. It reads all keys into memory."""
    keys = version.scan(list(key))
    found = keys.group_by(keys.column_names).aggregate([([], "count_all")])
    if found.num_rows < keys.num_rows:
        twice = to_rows(found.filter(pc.greater(found["count_all"], 1)).slice(0, 1))[0]
        said = ", ".join(f"{name} = {twice[name]!r}" for name in keys.column_names)
        raise BadData(
            f"{what} has {twice['count_all']} rows with the key {said}",
            hint="declare the columns that identify a row as PRIMARY KEY, or remove the rows",
        )
