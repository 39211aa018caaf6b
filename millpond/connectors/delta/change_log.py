"""Reads the changes of a Delta table, version by version, from its log.

A version that has files of the change feed is read from these. Another one deletes the rows of the files that it
removes and inserts those of the files that it adds: the same, at a higher cost if rows were only moved. A version that
does not change data (OPTIMIZE) has nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.cdc.log import ADDED, ENDED, KEPT, OP, PUT, log_schema
from millpond.connectors.delta.table_files import DataFile, TableFiles
from millpond.connectors.source import BYTES_OF_A_ROW
from millpond.errors import CaptureLost
from millpond.types import Schema

_TYPE = "_change_type"
_OPS = {"insert": ADDED, "update_postimage": PUT, "update_preimage": ENDED, "delete": ENDED}
_CODES = np.array(list(_OPS.values()), np.int8)
_VERSIONS_KNOWN = 256


class ChangeLog:
    """Reads the log of a table."""

    def __init__(self, files: TableFiles):
        self._files = files
        self._known: dict[int, list[dict[str, Any]]] = {}

    def after(self, start: int, newest: int, rows: int) -> int:
        """Returns a later version, about so many rows of changes after ``start``; ``newest`` if there are less."""
        left, version = rows, start
        while version < newest and left > 0:
            version += 1
            left -= sum(_rows(action) for action in self._actions(version))
        return version

    def read(self, start: int, end: int, schema: Schema) -> Iterator[pa.RecordBatch]:
        """Yields what lies after ``start`` up to ``end``, in order; of one version first what is deleted."""
        for version in range(start + 1, end + 1):
            actions = self._actions(version)
            try:
                yield from self._version(version, actions, schema)
            except FileNotFoundError as error:
                raise CaptureLost(
                    f"{self._files.what} does not have the changes of version {version} any more: a file of it was"
                    f" vacuumed ({error})".partition("\n")[0],
                    hint="drop the table and create it again; VACUUM must keep what was not read yet",
                ) from None

    def _version(
        self, version: int, actions: list[dict[str, Any]], schema: Schema
    ) -> Iterator[pa.RecordBatch]:
        arrow, files = schema.arrow(), self._files
        fed = [_file(a["cdc"]) for a in actions if "cdc" in a]
        if fed:
            puts: list[pa.RecordBatch] = []
            for file in fed:
                for batch in files.read(file, arrow, {}, (_TYPE,)):
                    said = pc.index_in(
                        batch.column(batch.num_columns - 1).cast(pa.string()), pa.array(list(_OPS))
                    )
                    ops = _CODES[said.to_numpy(zero_copy_only=False)]
                    rows = batch.drop_columns([_TYPE])
                    yield _logged(rows, ops, ops == ENDED, schema)
                    puts.append(_logged(rows, ops, ops != ENDED, schema))
            yield from puts
            return
        removed = [a["remove"] for a in actions if "remove" in a and a["remove"].get("dataChange", True)]
        added = [a["add"] for a in actions if "add" in a and a["add"].get("dataChange", True)]
        for action, before, op in (
            *((a, True, ENDED) for a in removed),
            *((a, False, PUT if removed else ADDED) for a in added),
        ):
            kept: Mapping[str, np.ndarray] = {}
            if action.get("deletionVector") is not None:
                kept = files.kept_of(files.at(version - 1 if before else version))
            for batch in files.read(_file(action), arrow, kept):
                ops = np.full(batch.num_rows, op, np.int8)
                yield _logged(batch, ops, np.ones(batch.num_rows, bool), schema)

    def _actions(self, version: int) -> list[dict[str, Any]]:
        """Returns what the log has of a version."""
        if version not in self._known:
            try:
                text = self._files.text(f"_delta_log/{version:020}.json")
            except FileNotFoundError:
                raise CaptureLost(
                    f"the log of {self._files.what} does not have version {version} any more",
                    hint="drop the table and create it again; delta.logRetentionDuration says how long it is kept",
                ) from None
            if len(self._known) >= _VERSIONS_KNOWN:
                self._known.clear()
            self._known[version] = [json.loads(line) for line in text.splitlines() if line.strip()]
        return self._known[version]


def _logged(batch: pa.RecordBatch, ops: np.ndarray, which: np.ndarray, schema: Schema) -> pa.RecordBatch:
    rows = batch.filter(pa.array(which))
    kept = pa.nulls(rows.num_rows, pa.list_(pa.int16()))
    arrays = [*rows.columns, pa.array(ops[which], pa.int8()), kept]
    fields = log_schema(schema)
    assert fields.names[-2:] == [OP, KEPT]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)


def _file(action: Mapping[str, Any]) -> DataFile:
    partition = tuple((action.get("partitionValues") or {}).items())
    return DataFile(unquote(action["path"]), action.get("size") or 0, None, partition)


def _rows(action: Mapping[str, Any]) -> int:
    """Returns about how many changes an entry of the log has."""
    found = next((action[k] for k in ("cdc", "add", "remove") if k in action), None)
    if found is None or not found.get("dataChange", True):
        return 0
    stats = json.loads(found.get("stats") or "{}")
    return int(stats.get("numRecords") or (found.get("size") or 0) // BYTES_OF_A_ROW)
