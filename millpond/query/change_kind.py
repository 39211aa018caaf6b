"""Adds the column with the operation of each row that a running SELECT emits."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

Op = Literal["insert", "delete", "upsert"]


def with_op(rows: pa.Table, name: str | None, op: Op) -> pa.Table:
    """Returns the rows with that column first, if it is requested."""
    if name is None:
        return rows
    return rows.add_column(0, name, pa.array([op] * rows.num_rows, pa.string()))


def emitted_schema(schema: pa.Schema, name: str | None) -> pa.Schema:
    """Returns the columns of the emitted rows."""
    return schema if name is None else schema.insert(0, pa.field(name, pa.string()))
