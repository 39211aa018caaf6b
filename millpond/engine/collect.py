"""Collects the rows of a Spark query as Arrow.

``DataFrame.toArrow`` fails where a struct is NULL that has fields which cannot be: they are NULL with it, and Arrow
takes that for a mistake. So all fields may be NULL here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def collect(frame: DataFrame) -> pa.Table:
    """All rows."""
    batches = frame._collect_as_arrow(empty_list_if_zero_records=False)  # type: ignore[operator]
    return pa.Table.from_batches(batches).cast(schema_of(frame))


def schema_of(frame: DataFrame) -> pa.Schema:
    """The columns of a frame, all of which, and whatever they hold, may be NULL."""
    from pyspark.sql.pandas.types import to_arrow_schema

    known = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
    return pa.schema([pa.field(f.name, _open(f.type), metadata=f.metadata) for f in known])


def _open(dtype: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_list(dtype):
        return pa.list_(pa.field(dtype.value_field.name, _open(dtype.value_type)))
    if t.is_map(dtype):
        return pa.map_(_open(dtype.key_type), _open(dtype.item_type))
    if t.is_struct(dtype):
        return pa.struct([pa.field(f.name, _open(f.type), metadata=f.metadata) for f in dtype])
    return dtype
