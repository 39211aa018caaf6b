"""Checks that the columns that are said to identify a row of a Delta table do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.delta.table_files import TableFiles
from millpond.errors import BadData

if TYPE_CHECKING:
    from deltalake import DeltaTable


def check_unique(
    files: TableFiles, version: int, table: DeltaTable, kept: Mapping[str, np.ndarray], key: pa.Schema
) -> None:
    """Raises BadData if two rows have the same key: changes of them could not be told apart."""
    path = ""
    try:
        batches: list[pa.RecordBatch] = []
        for file in files.files_of(table):
            path = file.path
            batches += files.read(file, key, kept)
    except FileNotFoundError:
        raise files.gone(path, version) from None
    keys = pa.Table.from_batches(batches, key)
    found = keys.group_by(key.names).aggregate([([], "count_all")])
    if found.num_rows == keys.num_rows:
        return
    twice = found.filter(pc.greater(found["count_all"], 1)).slice(0, 1).to_pylist()[0]
    said = ", ".join(f"{name} = {twice[name]}" for name in key.names)
    raise BadData(
        f"{files.what} has {twice['count_all']} rows with the key {said}, in version {version}",
        hint='name columns that identify a row in option "key", or leave it out',
    )
