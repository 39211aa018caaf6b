"""Passes on the highest time in a batch with the rows that a statement keeps of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.store.snapshot import StoreSnapshot

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.stage import Stage

_HIGH = b"high"


def with_high(rows: pa.Table, highest: Stage | None, batch: Batch, snapshots: StoreSnapshot) -> pa.Table:
    """Returns the rows of a batch with the highest time in it, of all rows of the stream; ``high_of`` reads it."""
    high = batch.high
    if highest is not None:
        high = highest.run(batch, snapshots).column(0).cast(pa.int64())[0].as_py()
    return rows.replace_schema_metadata({_HIGH: str(high)}) if high is not None else rows


def high_of(rows: pa.Table) -> int | None:
    high = (rows.schema.metadata or {}).get(_HIGH)
    return int(high) if high is not None else None
