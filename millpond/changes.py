"""What a batch does to a table, and how far a pipeline has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

ROW = "_row"
"""The column of row numbers by which the rows of a table without a key are known."""

Offset = Mapping[str, Any]
"""A place on a source's line of offsets. JSON, so that a checkpoint can hold it."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a pipeline has been applied.

    ``checkpoint`` is the identity of the Spark checkpoint that numbered the batch, so that batch 0 of
    a new checkpoint is never taken for batch 0 of the old one. ``offsets`` are the ends of its sources.
    """

    pipeline: str
    checkpoint: str
    batch: int
    offsets: Mapping[str, Offset] = field(default_factory=dict)

    def covers(self, other: Position) -> bool:
        """Whether ``other`` had been applied when this was the newest position of the pipeline."""
        return self.checkpoint == other.checkpoint and self.batch >= other.batch


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows in the order in which they take effect: on a keyed table the last row of a key wins.

    Where ``deleted`` is true the row ends the row with its key (only the key columns are looked at).
    A table without a key keeps every row and numbers it, from 0 on. There the rows may have one column more,
    ``_row``: a row with a number takes the place of the row of that number, or ends it; one without is new.
    """

    rows: pa.Table
    deleted: pa.BooleanArray | None = None

    @property
    def put(self) -> pa.Table:
        """The rows that come or take the place of others, without those that end some."""
        return self.rows if self.deleted is None else self.rows.filter(pc.invert(self.deleted))

    def __len__(self) -> int:
        return int(self.rows.num_rows)
