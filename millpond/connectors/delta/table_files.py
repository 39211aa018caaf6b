"""Reads the files of a Delta table: which it has at a version, and their rows.

delta-rs says which files there are, and which of their rows are deleted; pyarrow reads them, file by file, so that the
same rows come in the same order each time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millpond.connectors.delta.client import explained
from millpond.connectors.delta.file_system import file_system
from millpond.connectors.delta.versions import history_of, table_at
from millpond.errors import (
    BadData,
    ConnectionLost,
    NotSupported,
    SourceChanged,
    SourceError,
    without_passwords,
)
from millpond.types import Column, Schema, normal, type_name

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FEATURES = frozenset({"timestampNtz", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"})
"""What readers must know of tables that are read here."""
_BATCH = 65_536
_AGAIN = 5.0
"""Seconds after which a table is opened again, although it has no new version."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """Describes a file with rows, by its path in the folder of the table."""

    path: str
    size: int
    rows: int | None
    """The rows in it, if that is known."""
    partition: tuple[tuple[str, Any], ...]
    """The columns that all its rows have the same value in."""
    modified: int = 0


class TableFiles:
    """Represents a table. Picklable."""

    def __init__(self, place: str, storage: Mapping[str, str]):
        self.place = place
        self.storage = dict(storage)
        self._newest: tuple[DeltaTable, float] | None = None
        self.what = f'Delta table "{without_passwords(place)}"'

    def newest(self) -> DeltaTable:
        """Opens the newest version. Only what was committed since the last call is read of the log, but for once in a
        while: there may be another table in its place.
        """
        known = self._newest
        if known is not None and time.monotonic() - known[1] < _AGAIN:
            before = known[0].version()
            with explained(self.place):
                known[0].update_incremental()
            if known[0].version() == before:
                return known[0]
        self._newest = self.at(None), time.monotonic()
        return self._newest[0]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_newest": None}

    def at(self, version: int | datetime | None) -> DeltaTable:
        """Opens the table as of a version, or a time; None is the newest. Raises what prevents reading it."""
        table = table_at(self.place, self.storage, version)
        protocol = table.protocol()
        unknown = frozenset(protocol.reader_features or ()) - _FEATURES
        mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
        if unknown or mapped or protocol.min_reader_version > 3:
            named = ", ".join(sorted(unknown | ({"columnMapping"} if mapped else frozenset())))
            raise NotSupported(
                f"{self.what} has features that are not read here: {named or protocol.min_reader_version}",
                hint="read a copy without them",
            )
        return table

    def history(self) -> pa.Table:
        """Returns the versions that the log has, the newest first."""
        with explained(self.place):
            return history_of(self.at(None))

    def schema_of(self, table: DeltaTable) -> Schema:
        """Returns the columns of a version."""
        fields = pa.schema(table.schema().to_arrow())
        return Schema(tuple(Column(f.name, normal(f.type)) for f in fields))

    def files_of(self, table: DeltaTable) -> list[DataFile]:
        """Returns the files of a version, in the order in which they were written."""
        with explained(self.place):
            found = pa.table(table.get_add_actions(flatten=True))
        cut = [n for n in found.column_names if n.startswith("partition.")]
        files = [
            DataFile(
                unquote(row["path"]),
                row["size_bytes"],
                row["num_records"],
                tuple((name.partition(".")[2], row[name]) for name in cut),
                row["modification_time"],
            )
            for row in found.select(
                ["path", "size_bytes", "num_records", "modification_time", *cut]
            ).to_pylist()
        ]
        return sorted(files, key=lambda f: (f.modified, f.path))

    def kept_of(self, table: DeltaTable) -> dict[str, np.ndarray]:
        """Returns which rows of files are not deleted, by the whole paths of those files in which some are."""
        if "deletionVectors" not in (table.protocol().reader_features or ()):
            return {}
        with explained(self.place):
            found = pa.table(table.deletion_vectors())
        masks = (np.asarray(m.values) for m in found["selection_vector"].combine_chunks())
        paths = (unquote(str(path)) for path in found["filepath"].to_pylist())
        return dict(zip(paths, masks, strict=True))

    def exists(self, file: DataFile) -> bool:
        """Returns whether a file is still there, as far as that can be seen without opening it."""
        return "://" in self.place or os.path.exists(os.path.join(self.place, file.path))

    def read(
        self,
        file: DataFile,
        schema: pa.Schema,
        kept: Mapping[str, np.ndarray],
        more: Sequence[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a file that are not deleted: the columns of ``schema``, NULL where it has none of that
        name, and those of ``more`` as they are. Raises FileNotFoundError.
        """
        # Files of several partitions may have the same name.
        ends = (f"/{file.path}", f"/{unquote(file.path)}")
        mask, first = next((m for path, m in kept.items() if path.endswith(ends)), None), 0
        with (
            self._opened(file.path) as opened,
            pq.ParquetFile(opened, coerce_int96_timestamp_unit="us") as parquet,
        ):
            there = {n.lower(): n for n in parquet.schema_arrow.names}
            constants = {name.lower(): value for name, value in file.partition}
            wanted = [there[f.name.lower()] for f in schema if f.name.lower() in there]
            for batch in parquet.iter_batches(_BATCH, columns=[*wanted, *more]):
                arrays = [self._column(f, batch, there, constants) for f in schema]
                rest = [batch.column(name) for name in more]
                fields = [*schema, *(batch.schema.field(name) for name in more)]
                found = pa.RecordBatch.from_arrays([*arrays, *rest], schema=pa.schema(fields))
                if mask is not None:
                    part = np.ones(batch.num_rows, bool)
                    known = mask[first : first + batch.num_rows]
                    part[: len(known)] = known
                    found = found.filter(pa.array(part))
                first += batch.num_rows
                yield found

    def _opened(self, path: str) -> Any:
        try:
            return file_system(self.place, self.storage).open_input_file(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ConnectionLost(f"{self.what} cannot be reached: {error}") from None

    def text(self, path: str) -> bytes:
        """Returns the content of a file. Raises FileNotFoundError."""
        with self._opened(path) as opened:
            found: bytes = opened.read()
        return found

    def _column(
        self, field: pa.Field, batch: pa.RecordBatch, there: Mapping[str, str], constants: Mapping[str, Any]
    ) -> pa.Array:
        name = field.name.lower()
        try:
            if name in constants:
                return pa.repeat(_constant(constants[name], field.type), batch.num_rows)
            if name not in there:
                return pa.nulls(batch.num_rows, field.type)
            array = batch.column(there[name])
            return array if array.type == field.type else array.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise BadData(
                f'column "{field.name}" of {self.what} does not fit {type_name(field.type)}: {error}'
            ) from None

    def gone(self, file: str, version: int) -> SourceError:
        """Returns the error about a file that was removed."""
        return SourceChanged(
            f'{self.what} does not have the file "{file}" of version {version} any more: it was vacuumed',
            hint="read a newer version; VACUUM with a longer retention keeps old ones",
        )


def _constant(value: Any, dtype: pa.DataType) -> pa.Scalar:
    """Returns the value of a partition: of its type, or as the log writes it."""
    if value is None or (value == "" and isinstance(value, str)):
        return pa.scalar(None, dtype)
    if not isinstance(value, str) or pa.types.is_string(dtype):
        return pa.scalar(value).cast(dtype)
    if pa.types.is_boolean(dtype):
        return pa.scalar(value.lower() == "true")
    if pa.types.is_binary(dtype):
        return pa.scalar(value.encode(), dtype)
    if pa.types.is_timestamp(dtype):
        moment = datetime.fromisoformat(value)
        return pa.scalar(
            moment.replace(tzinfo=None) if dtype.tz is None else moment, pa.timestamp("us", dtype.tz)
        )
    return pa.scalar(value).cast(dtype)
