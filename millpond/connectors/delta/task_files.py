"""Writes data files of a Delta table in tasks of executors. They count when the driver adds them to the table."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millpond.changes import ROW, Changes
from millpond.connectors.delta.client import explained
from millpond.connectors.delta.dataset import is_pruned
from millpond.connectors.delta.file_system import file_system
from millpond.connectors.delta.row_numbers import OF_A_TASK, TASKS
from millpond.connectors.delta.stored_rows import stored
from millpond.connectors.divided_table import Written
from millpond.connectors.sink import TaskWriter
from millpond.errors import NotSupported
from millpond.records.checks import checked
from millpond.types import Schema

if TYPE_CHECKING:
    from deltalake.transaction import AddAction, RemoveAction

_MOST = 64 << 20
"""Bytes of rows that become a file: a task has them in memory."""
_ROW_GROUP = 131_072
_LONGEST = 32
"""Letters of a text that are in the statistics of a file, which every reader of the log has in memory."""


@dataclass(slots=True)
class DataFiles(TaskWriter):
    """Writes rows. Those of a table without a key get numbers from ``first`` on; with ``columns`` rows are checked as
    the table ``what`` checks them.
    """

    what: str
    place: str
    storage: Mapping[str, str]
    columns: Schema | None
    names: tuple[str, ...]
    first: int | None
    _next: int = field(default=0, init=False)

    schema: ClassVar[Schema] = Schema.of(
        pa.schema(
            [
                ("path", pa.string()),
                ("rows", pa.int64()),
                ("bytes", pa.int64()),
                ("stats", pa.string()),
                ("end", pa.int64()),
            ]
        )
    )

    @property
    def most(self) -> int:
        return _MOST

    @property
    def by(self) -> tuple[str, ...]:
        return ()

    def of_task(self, number: int) -> Self:
        assert number < TASKS
        if self.first is None:
            return self
        return replace(self, first=self.first + number * OF_A_TASK)

    def write(self, rows: pa.Table) -> pa.Table:
        if self.columns is not None:
            rows = checked(self.columns, Changes(rows), what=self.what, null_keys=False).rows
        end = 0
        if self.first is not None:
            first, self._next = self.first + self._next, self._next + rows.num_rows
            if self._next > OF_A_TASK:
                raise NotSupported(f"{self.what}: a batch has more than {OF_A_TASK} rows in one task")
            end = first + rows.num_rows
            rows = rows.append_column(ROW, pa.array(np.arange(first, end)))
        kept = stored(rows, self.names, ())
        # A task may run twice, and both write: the names are never the same.
        path = f"part-{uuid.uuid4()}.snappy.parquet"
        with explained(self.place), file_system(self.place, self.storage).open_output_stream(path) as file:
            pq.write_table(kept, file, compression="snappy", row_group_size=_ROW_GROUP)
            size = file.tell()
        found = {"path": path, "rows": kept.num_rows, "bytes": size, "stats": _stats(kept)}
        found["end"] = end
        return pa.Table.from_pylist([found], self.schema.arrow())


def _stats(rows: pa.Table) -> str:
    """Returns what the log says about a file: readers that look for other values leave it out."""
    low, high, nulls = {}, {}, {}
    for name in rows.column_names:
        column = rows[name]
        if pa.types.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        if is_pruned(column.type) and column.null_count < len(column):
            ends = pc.min_max(column).as_py()
            if isinstance(ends["min"], str) and max(map(len, ends.values())) > _LONGEST:
                continue
            low[name], high[name] = ends["min"], ends["max"]
    said = {"numRecords": rows.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps(said, default=date.isoformat)


def actions_of(written: Written) -> list[AddAction | RemoveAction]:
    """Returns what a batch does to the files of a table, as the log has it."""
    from deltalake.transaction import AddAction, RemoveAction

    now = int(time.time() * 1000)
    put = [
        AddAction(file["path"], file["bytes"], {}, now, data_change=True, stats=file["stats"])
        for file in written.files.to_pylist()
    ]
    return [*put, *(RemoveAction(path, True, now, None, {}) for path in written.removed)]
