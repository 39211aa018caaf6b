"""Finds the changes that stay of several to the same rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millpond.changes import Changes
from millpond.records.keys import key_list


def last_changes(changes: Changes, key: Sequence[str]) -> Changes:
    """Returns the last change of each key, all without one."""
    if not key:
        return changes
    keys = key_list([changes.rows.column(name) for name in key])
    last = dict(zip(keys, range(len(keys)), strict=True))
    if len(last) == len(keys):
        return changes
    pick = pa.array(np.sort(np.fromiter(last.values(), np.int64, len(last))))
    deleted = None if changes.deleted is None else changes.deleted.take(pick)
    return Changes(changes.rows.take(pick), deleted)
