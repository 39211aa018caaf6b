"""Reads one row of a table by its key, as Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.query.table import Table
from millpond.tables.base import Snapshot


def as_arrow(table: Table, key: tuple[Any, ...], view: Snapshot | None = None) -> pa.Table:
    """Returns the row with a key, now or in a view of the table."""
    columns = list(table.schema.key)
    wanted = {n: pa.array([v], table.schema.arrow().field(n).type) for n, v in zip(columns, key, strict=True)}
    return (view or table.backend.snapshot()).get(columns, pa.table(wanted), nulls=None in key)
