"""Implements ``delta``: rows in a Delta table, with the changes of the last seconds on top.

A commit is durable in the app's journal, and visible at once as a *layer* over the *base*, which is the Delta table. A
flush writes the layer to the base, as one commit there.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Changes, Position
from millpond.connectors.delta.base_table import BaseTable
from millpond.connectors.delta.care import Care
from millpond.connectors.delta.client import is_unused, library, storage_options
from millpond.connectors.delta.columns import check_declared, check_partition_texts, check_partitions
from millpond.connectors.delta.full import full
from millpond.connectors.delta.layer import Layer
from millpond.connectors.delta.layered import LayeredSnapshot
from millpond.connectors.delta.merged_files import MergedFiles, can_merge, merging
from millpond.connectors.delta.places import leave, own_folder, place_for, remove_folder, take
from millpond.connectors.delta.row_numbers import RowNumbers
from millpond.connectors.delta.table_options import CACHE_SIZE, TABLE_OPTIONS
from millpond.connectors.delta.task_files import DataFiles
from millpond.connectors.divided_table import DividedTable, Written
from millpond.connectors.named_columns import named_columns
from millpond.connectors.table import numbered
from millpond.errors import (
    Closed,
    Error,
    NotSupported,
)
from millpond.records.checks import checked
from millpond.tables.flushed_table import Pending
from millpond.tables.versioned_table import VersionedTable
from millpond.types import Schema

_MOST = 4
"""How many times ``flush.size`` the changes may take that are not in the base."""
_WAIT = 60.0


class DeltaTable(DividedTable, VersionedTable):
    """Represents a table whose base is a Delta table. It works alone, without an app; then nothing is flushed."""

    inside = True
    flushed_by = "the app's process, with delta-rs"
    abilities = frozenset({"held", "null_keys", "every_key", "every_float"})
    options = TABLE_OPTIONS

    def __init__(
        self,
        name: str,
        schema: Schema,
        base: BaseTable,
        place: str,
        values: Mapping[str, Any],
        *,
        null_keys: bool,
        anchor: Mapping[str, Any],
        home: Path | None,
    ):
        self.schema = schema
        self.what = f'table "{name}"'
        self.null_keys = null_keys
        self.flush_interval = float(values.get("flush.interval", 30.0))
        self.flush_size = int(values.get("flush.size", 64 << 20))
        self._base, self._care = base, Care(values)
        self._place, self._home, self._storage = place, home, storage_options(values)
        self._stored = str(values.get("table") or name).lower()
        self.anchor = anchor
        self.base_stays = not anchor.get("owned")
        self.constraints = base.constraints
        required = (replace(c, nullable=c.nullable and c.name.lower() not in base.required) for c in schema)
        self._checked = replace(schema, columns=tuple(required))
        self._turn, self._writing = threading.RLock(), threading.RLock()
        self._done = threading.Condition(self._turn)
        self._fresh = self._new_layer()
        self._frozen: tuple[Layer, int, int, Sequence[Position]] | None = None
        self._numbers = RowNumbers(base.next_row)
        self._positions: dict[str, Position] = {}
        self._commit, self._version = -1, 0
        self._changed_at: float | None = None
        self._closed: Error | None = None
        self._show()

    @classmethod
    def open(
        cls,
        name: str,
        schema: Schema,
        values: Mapping[str, Any],
        *,
        null_keys: bool = False,
        home: Path | None = None,
    ) -> Self:
        library()
        check_declared(name, schema)
        partitions = named_columns("partition.by", values.get("partition.by"), schema.names)
        check_partitions(schema, partitions)
        place, known = place_for(name, values, home), values.get("anchor") or {}
        is_free = "://" not in place and not (os.path.isdir(place) and os.listdir(place))
        take(place, name)
        try:
            if home is not None and not known and not values.get("path") and is_unused(place):
                remove_folder(home, Path(place))  # a CREATE TABLE that was killed has left it
                is_free = True
            own = str(known.get("table") or uuid.uuid4().hex)
            base = BaseTable(
                place,
                storage_options(values),
                schema,
                null_keys=null_keys,
                own=own,
                known=known.get("id"),
                partitions=partitions,
                cache_size=int(values.get("cache.size", CACHE_SIZE)),
            )
            check_partitions(schema, base.partitions)
            anchor = known or {"id": base.id, "table": own}
            if not known:
                anchor |= {"path": place} if values.get("path") else {"owned": base.is_new and is_free}
            return cls(name, schema, base, place, values, null_keys=null_keys, anchor=anchor, home=home)
        except BaseException:
            leave(place)
            raise

    def _new_layer(self) -> Layer:
        return Layer(self.schema, null_keys=self.null_keys)

    def _show(self) -> None:
        """Shows readers the newest changes and the newest base."""
        layers = [self._fresh, *(() if self._frozen is None else (self._frozen[0],))]
        self._latest = LayeredSnapshot(
            self.what,
            self.schema,
            self._version,
            [layer.table.snapshot() for layer in layers],
            self._base.version,
            self._base.at,
        )

    # changes

    def apply(self, changes: Changes, position: Position | None = None, *, commit: int | None = None) -> bool:
        with self._turn:
            self._check_open()
            known = self._positions.get(position.pipeline) if position is not None else None
            if position is not None and known is not None and known.covers(position):
                return False
            if commit is not None and commit < self._commit:
                raise ValueError(f"commit {commit} of {self.what} after commit {self._commit}")
            fitting = self._fitting(changes, self.schema)
            before = self._numbers.next
            try:
                if not self.schema.key:
                    fitting = Changes(numbered(fitting.rows, self._numbers.take), fitting.deleted)
                self._fresh.apply(fitting)
                if commit is not None and len(fitting):
                    self._fresh.commit = commit
            except BaseException:
                self._numbers.next = before
                raise
            if len(fitting):
                self._version += 1
                self._changed_at = time.time()
                self._show()
            if position is not None:
                self._positions[position.pipeline] = position
            self._commit = self._commit if commit is None else commit
            return True

    def restored(self, commit: int) -> None:
        self._fresh.commit = commit

    def check(self, changes: Changes) -> Changes:
        fitting = self._fitting(changes, self._checked)
        if self.check_rows is not None:
            self.check_rows(fitting, self.what)
        return fitting

    def _fitting(self, changes: Changes, schema: Schema) -> Changes:
        fitting = checked(schema, changes, what=self.what, null_keys=self.null_keys)
        check_partition_texts(self.schema, fitting.rows, self._base.partitions, self.what)
        return fitting

    def admit(self, changes: Changes) -> None:
        most = _MOST if self.flush_error else 2 * _MOST  # other commits may have come since there was room
        with self._turn:
            if not self._has_room(changes.rows.nbytes, most):
                raise full(self.what, self._unflushed(), self.flush_error)

    def wait_for_room(self, size: int) -> None:
        with self._done:
            self._done.wait_for(
                lambda: self._has_room(size, _MOST) or self.flush_error or self._closed, timeout=_WAIT
            )
            self._check_open()
            if not self._has_room(size, _MOST):
                raise full(self.what, self._unflushed(), self.flush_error)

    def flush_ended(self, error: str | None) -> None:
        with self._done:
            self.flush_error = error
            self._done.notify_all()

    def _has_room(self, size: int, most: int) -> bool:
        unflushed = self._unflushed()
        return not unflushed or unflushed + size <= most * self.flush_size

    def _unflushed(self) -> int:
        return self._fresh.bytes + (0 if self._frozen is None else self._frozen[0].bytes)

    # flushes

    def flushed(self, state: str) -> int | None:
        return self._base.flushed(state)

    @property
    def pending(self) -> Pending:
        layers = [self._fresh, *(() if (frozen := self._frozen) is None else (frozen[0],))]
        since = [layer.since for layer in layers if layer.since is not None]
        return Pending(
            sum(len(layer) for layer in layers),
            sum(layer.bytes for layer in layers),
            min(since, default=None),
        )

    def freeze(self, commit: int, positions: Sequence[Position] = ()) -> int | None:
        with self._turn:
            self._check_open()
            if self._frozen is None:
                if self._fresh.since is None:
                    return None
                last = self._fresh.commit
                self._frozen = self._fresh, commit if last is None else last, self._numbers.so_far, positions
                self._fresh = self._new_layer()
                self._show()
            return self._frozen[1]

    def flush(self, state: str) -> None:
        frozen = self._frozen
        if frozen is None:
            return
        layer, commit, next_row, positions = frozen
        with self._writing:
            before = self._base.version.number
            self._base.write(layer.table.scan(), state, commit, next_row, positions)
        with self._turn:
            self._check_open()
            self._frozen = None
            if self._base.version.number > before + 1:
                self._version += 1  # others have changed rows too
            self._show()
            self._done.notify_all()

    @property
    def own(self) -> str:
        return str(self.anchor["table"])

    @classmethod
    def divides(cls, values: Mapping[str, Any], schema: Schema) -> bool:
        return not values.get("partition.by") and (not schema.key or can_merge(values, schema))

    def undisturbed(self) -> AbstractContextManager[object]:
        return self._writing

    def task_writer(self, *, local: bool) -> DataFiles | None:
        base, seen = self._base, local or "://" in self._place
        if self.schema.key or base.partitions or base.constraints or not seen:
            return None
        with self._turn:
            first = self._numbers.reserve()
        return DataFiles(self.what, self._place, self._storage, self._checked, base.names, first)

    def merging(self, *, local: bool) -> MergedFiles | None:
        if not self.schema.key or self.null_keys or not local:
            return None
        return merging(self._base, self.what, self._place, self.schema, self._checked)

    def has_changed(self, version: int) -> bool:
        return bool(self.pending.rows) or self._base.version.number != version

    def publish(self, written: Written, state: str, number: int, positions: Sequence[Position]) -> None:
        end = pc.max(written.files["end"]).as_py()
        with self._writing:
            self._base.publish(written, state, number, end, positions)
        with self._turn:
            self._numbers.used(end)

    def published(self, state: str) -> int | None:
        return self._base.published(state)

    # versions and their files

    def history(self) -> pa.Table:
        self._check_open()
        return self._base.history()

    def optimize(self) -> pa.Table:
        self._check_open()
        with self._writing:
            done = self._base.optimize()
        self._care.optimized(self._base.files)
        self.snapshot()  # shows the new files, and lets go of the old ones
        return done

    def vacuum(self, hours: int | None) -> pa.Table:
        self.snapshot()
        with self._writing:
            return self._base.vacuum(self._care.retention if hours is None else hours)

    def care(self) -> None:
        if self._care.should_optimize(self._base.files):
            self.optimize()
        if self._care.should_vacuum():
            self.vacuum(None)

    # reading

    def snapshot(self, commit: int | None = None) -> LayeredSnapshot:
        self._check_open()
        if commit is not None:
            raise NotSupported(f"{self.what} does not keep earlier commits")
        if self._latest.base is not self._base.version:
            with self._turn:
                self._version += 1  # others may have changed rows
                self._show()
        return self._latest

    @property
    def last_commit(self) -> int:
        return self._commit

    @property
    def version(self) -> int:
        self._check_open()
        return self._version

    def position(self, pipeline: str) -> Position | None:
        return self._positions.get(pipeline)

    def stats(self) -> dict[str, Any]:
        base, pending = self._base.version, self.pending
        return {
            "rows": len(self.snapshot()),
            "bytes": base.bytes + pending.bytes,
            "where": self._place,
            "version": base.number,
            "files": base.files,
            "pending_rows": pending.rows,
            "flush_error": self.flush_error,
            "changed_at": self._changed_at,
            **self._base.cache.stats(),
        }

    def rename(self, name: str) -> None:
        self.what = f'table "{name}"'

    @property
    def stored_name(self) -> str | None:
        return None if "path" in self.anchor else self._stored

    def remove(self) -> None:
        """Removes the folder, if it was created in the state directory; a Delta table at a ``path`` stays."""
        if self._home is not None and self.anchor.get("owned"):
            remove_folder(self._home, Path(self._place))

    @classmethod
    def remove_left(cls, name: str, values: Mapping[str, Any], home: Path) -> None:
        if (values.get("anchor") or {}).get("owned"):
            remove_folder(home, own_folder(home, str(values.get("table") or name)))

    def fail(self, error: Error) -> None:
        self._closed = self._closed or error

    def close(self) -> None:
        with self._turn:
            if not isinstance(self._closed, Closed):
                self._closed = Closed(f"{self.what} is closed")
                leave(self._place)
            self._done.notify_all()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise copy(self._closed)


BACKEND = DeltaTable
