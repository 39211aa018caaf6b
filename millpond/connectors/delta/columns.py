"""Says which columns Delta has."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.errors import InvalidOption, NotSupported, TypeMismatch
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
