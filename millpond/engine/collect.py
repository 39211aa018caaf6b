"""Collects the rows of a Spark query as Arrow.

``DataFrame.toArrow`` fails if a struct is NULL and has fields that are not nullable: they are NULL with it, which Arrow
refuses. So all fields are nullable here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.engine.internals import arrow_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def collect(frame: DataFrame) -> pa.Table:
    """Returns all rows."""
    return pa.Table.from_batches(arrow_batches(frame)).cast(schema_of(frame))


def schema_of(frame: DataFrame) -> pa.Schema:
    """Returns the columns of a frame, all of them nullable, at every depth."""
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
