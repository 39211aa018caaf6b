"""Makes a dataset of pyarrow of the files of a version, with what the log says of the values in each of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from millpond.connectors.delta.file_system import file_system


def dataset_of(
    place: str, storage: Mapping[str, str], files: pa.Table, schema: pa.Schema
) -> ds.FileSystemDataset:
    """Returns the rows of files; ``files`` are those that delta-rs names, with their statistics."""
    form = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"))
    system = file_system(place, storage)
    fragments = [
        form.make_fragment(
            unquote(file["path"]), filesystem=system, partition_expression=_known_of(file, schema)
        )
        for file in files.to_pylist()
    ]
    return ds.FileSystemDataset(fragments, schema, form, system)


def is_pruned(dtype: pa.DataType) -> bool:
    """Returns whether statistics of a column say exactly which values a file may have. Those of times are rounded by
    some writers, those of decimals are floats, and NaN is in none.
    """
    t = pa.types
    return bool(t.is_integer(dtype) or t.is_string(dtype) or t.is_date(dtype))


def is_filtered(dtype: pa.DataType) -> bool:
    """Returns whether pyarrow can compare a column while it reads: merges of delta-rs write texts in a form that it
    cannot compare with statistics in the file.
    """
    return is_pruned(dtype) and not pa.types.is_string(dtype)


def some_of(dataset: ds.FileSystemDataset, where: pc.Expression | None) -> ds.FileSystemDataset:
    """Returns the files that can have rows that meet the condition."""
    if where is None:
        return dataset
    found = list(dataset.get_fragments(filter=where))
    return ds.FileSystemDataset(found, dataset.schema, dataset.format, dataset.filesystem)


def _known_of(file: Mapping[str, Any], schema: pa.Schema) -> pc.Expression:
    """Returns what is true of all rows of a file."""
    known = []
    for field in schema:
        name = field.name
        if f"partition.{name}" in file:
            known.append(_is(field, file[f"partition.{name}"]))
        elif is_pruned(field.type):
            low, high = file.get(f"min.{name}"), file.get(f"max.{name}")
            if low is not None and high is not None:
                column = pc.field(name)
                within = (column >= pa.scalar(low, field.type)) & (column <= pa.scalar(high, field.type))
                known.append(within if file.get(f"null_count.{name}") == 0 else within | column.is_null())
    return reduce(and_, known) if known else pc.scalar(True)


def _is(field: pa.Field, value: Any) -> pc.Expression:
    column = pc.field(field.name)
    if value is None or (isinstance(value, str) and not value):
        return column.is_null()
    return column == pa.scalar(value).cast(field.type)
