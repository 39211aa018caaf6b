"""Finds the effective rows of a change: the last of each key."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from millpond.records.keys import key_list
from millpond.tables._numbers import Flags


class KeyedRows(NamedTuple):
    """Contains rows with different keys."""

    rows: pa.Table
    keys: list[Any]
    gone: Flags | None
    """Which of them delete a row."""
    places: dict[Any, int]
    """Where the row of a key is."""


def last_of_each(key: tuple[str, ...], rows: pa.Table, deleted: pa.BooleanArray | None) -> KeyedRows:
    """Returns the last row of each key, in their order."""
    keys = key_list([rows.column(name) for name in key])
    gone = None if deleted is None else np.asarray(deleted)
    last = dict(zip(keys, range(len(keys)), strict=True))
    if len(last) < len(keys):
        pick = np.sort(np.fromiter(last.values(), np.int64, len(last)))
        rows = rows.take(pa.array(pick))
        keys = [keys[i] for i in pick.tolist()]
        gone = None if gone is None else gone[pick]
        last = dict(zip(keys, range(len(keys)), strict=True))
    return KeyedRows(rows, keys, gone, last)
