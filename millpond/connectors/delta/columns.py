"""Says which columns Delta has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW
from millpond.errors import InvalidOption, InvalidRecord, NotSupported, TypeMismatch
from millpond.types import Column, Schema, type_name

_FORBIDDEN = frozenset(" ,;{}()\n\t=")
"""Characters that Spark refuses in the names of columns of Delta tables."""


def check_column(column: Column, hint: str = "name it: … AS name") -> None:
    """Raises InvalidOption or TypeMismatch for a column that a Delta table cannot have."""
    if wrong := _FORBIDDEN & set(column.name):
        raise InvalidOption(
            f'column "{column.name}": Delta allows no {sorted(wrong)[0]!r} in names', hint=hint
        )
    if column.type is not None and not _has_form(column.type):
        raise TypeMismatch(
            f'column "{column.name}": Delta has no {type_name(column.type)}',
            hint=f"CAST({column.name} AS STRING)",
        )


def check_declared(name: str, schema: Schema) -> None:
    """Raises InvalidOption or TypeMismatch for a table with columns that it cannot have."""
    for column in schema.columns:
        if not pa.types.is_duration(column.type):
            check_column(column, hint="give it another name")
    if ROW in schema:
        raise InvalidOption(f'table "{name}": "{ROW}" is the name of the numbers of rows')


def check_partitions(schema: Schema, names: Sequence[str]) -> None:
    """Raises NotSupported for columns that no table is partitioned by: of BINARY, delta-rs reads other bytes than it
    wrote.
    """
    for column in filter(None, map(schema.find, names)):
        if column.type is not None and pa.types.is_binary(column.type):
            raise NotSupported(
                f'column "{column.name}" is BINARY: a table is not partitioned by such a column',
                hint="leave it out of 'partition.by'",
            )


def check_partition_texts(schema: Schema, rows: pa.Table, names: Sequence[str], what: str) -> None:
    """Raises InvalidRecord for an empty text in a column that a table is partitioned by."""
    for column in filter(None, map(schema.find, names)):
        if not pa.types.is_string(column.type):
            continue
        empty = pc.equal(rows[column.name], "")
        if pc.any(empty).as_py():
            row = int(np.flatnonzero(np.asarray(empty.fill_null(False)))[0])
            raise InvalidRecord(
                f'row {row} for {what}: field "{column.name}" is an empty text, which is NULL in the name of a '
                "partition",
                row=row,
                field=column.name,
            )


def _has_form(dtype: pa.DataType) -> bool:
    """Returns whether Delta has the type."""
    t = pa.types
    if t.is_struct(dtype):
        return dtype.num_fields > 0 and all(_has_form(f.type) for f in dtype)
    if t.is_list(dtype):
        return _has_form(dtype.value_type)
    if t.is_map(dtype):
        return _has_form(dtype.key_type) and _has_form(dtype.item_type)
    return bool(
        t.is_boolean(dtype)
        or t.is_signed_integer(dtype)
        or t.is_floating(dtype)
        or t.is_decimal(dtype)
        or t.is_string(dtype)
        or t.is_binary(dtype)
        or t.is_date(dtype)
        or t.is_timestamp(dtype)
    )
