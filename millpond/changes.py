"""Defines the changes that a batch makes in a table, and the position of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROW = "_row"
"""The column of row numbers that identify the rows of a table without a key."""

AT = "\0at"
"""The column with the time of the last change of each row, in seconds since 1970, in what the journal stores."""

Offset = Mapping[str, Any]
"""A place on a source's line of offsets. JSON, so that the journal can contain it."""


@dataclass(frozen=True, slots=True)
class Position:
    """Contains how far a pipeline has been applied.

    ``checkpoint`` says what the number of the batch belongs to, so that batch 0 of a new load is never mistaken for
    batch 0 of the old one: for a load it is a fingerprint of its offsets, for a running statement it is empty.
    ``offsets`` are the ends of its sources.
    """

    pipeline: str
    checkpoint: str
    batch: int
    offsets: Mapping[str, Offset] = field(default_factory=dict)

    @property
    def parts(self) -> list[Any]:
        """Returns what makes an equal position, as JSON has it."""
        return [self.pipeline, self.checkpoint, self.batch, dict(self.offsets)]

    def covers(self, other: Position) -> bool:
        """Returns whether ``other`` had been applied when this was the newest position of the pipeline."""
        return self.checkpoint == other.checkpoint and self.batch >= other.batch


@dataclass(frozen=True, slots=True)
class Changes:
    """Contains rows in the order in which they take effect: on a keyed table the last row of a key wins.

    Where ``deleted`` is true the row deletes the row with its key (only the key columns are used). A table without a
    key stores every row and numbers it, from 0 on. There the rows may have one more column, ``_row``: a row with a
    number replaces the row of that number, or deletes it; one without is new.
    """

    rows: pa.Table
    deleted: pa.BooleanArray | None = None

    @property
    def put(self) -> pa.Table:
        """Returns the rows that are inserted or replace others, without those that delete some."""
        return self.rows if self.deleted is None else self.rows.filter(pc.invert(self.deleted))

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def with_time(rows: pa.Table, time: float) -> pa.Table:
    """Returns rows as the journal stores them, changed at that time."""
    return rows.append_column(AT, pa.array(np.full(rows.num_rows, time)))


def together(changes: Mapping[str, Changes], others: Mapping[str, Changes]) -> dict[str, Changes]:
    """Returns both; those of one table one after the other."""
    made = {**others, **changes}
    for name in changes.keys() & others.keys():
        parts = [changes[name], others[name]]
        numbered = any(ROW in p.rows.column_names for p in parts)
        rows = [_numbered(p.rows) if numbered else p.rows for p in parts]
        deleted = [p.deleted or pa.array(np.zeros(len(p), bool)) for p in parts]
        made[name] = Changes(pa.concat_tables(rows), pa.concat_arrays(deleted))
    return made


def _numbered(rows: pa.Table) -> pa.Table:
    if ROW in rows.column_names:
        return rows
    return rows.append_column(ROW, pa.nulls(rows.num_rows, pa.int64()))
