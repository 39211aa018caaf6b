"""Reads a Delta table at one commit: its base, with the layers of newer changes on top."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW
from millpond.connectors.delta.base_version import BaseVersion
from millpond.connectors.delta.layer import GONE, among, living
from millpond.errors import NotSupported, UnknownName, did_you_mean
from millpond.predicates import Predicate
from millpond.records.lookup_keys import fitting_keys
from millpond.tables.base import Found, Snapshot
from millpond.tables.versioned_table import VersionedSnapshot
from millpond.types import Column, Schema


class LayeredSnapshot(VersionedSnapshot):
    """Shows the rows of the base that no layer has changed, and those of the layers, the newest of which comes
    first.
    """

    remote = True

    def __init__(
        self,
        what: str,
        schema: Schema,
        version: int,
        layers: Sequence[Snapshot],
        base: BaseVersion,
        earlier: Callable[[int | datetime], BaseVersion],
    ):
        self.what = what
        self.schema = schema
        self.version = version
        self._layers = tuple(layers)
        self.base = base
        self._earlier = earlier
        self._identity = [self._column(name).name for name in schema.key] or [ROW]

    def at(self, version: int | datetime) -> LayeredSnapshot:
        base = self._earlier(version)
        return LayeredSnapshot(self.what, self.schema, self.version, (), base, self._earlier)

    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        self._check_numbers(rows)
        wanted = [self._column(name) for name in columns]
        names = [c.name for c in wanted]
        asked = pa.table(fitting_keys([c.type for c in wanted], keys, nulls=nulls), names)
        by_key = set(names) == set(self._identity)
        found = self._by_key(names, asked, nulls) if by_key else self._by_values(names, asked, nulls)
        return self._shown(pa.concat_tables(found), rows=rows)

    def find(self, columns: tuple[str, ...], keys: Sequence[Any]) -> Found | None:
        """Returns rows by their key, if no layer has one of them and all were looked up before."""
        for layer in self._layers:
            if len(layer):
                changed = layer.find(columns, keys)
                if changed is None or len(changed):
                    return None
        return self.base.find(columns, keys)

    def _by_key(self, names: list[str], asked: pa.Table, nulls: bool) -> list[pa.Table]:
        found = []
        for layer in self._layers:
            here = layer.get(names, asked, nulls=nulls)
            asked = asked.filter(pc.invert(among(asked, here, names)))
            found.append(living(here))
        return [*found, self.base.get(names, asked, nulls=nulls)]

    def _by_values(self, names: list[str], asked: pa.Table, nulls: bool) -> list[pa.Table]:
        found = [self._untouched(self.base.get(names, asked, nulls=nulls), self._layers)]
        for at, layer in enumerate(self._layers):
            newer = self._layers[:at]
            found.append(living(self._untouched(layer.get(names, asked, nulls=nulls), newer)))
        return found

    def _untouched(self, rows: pa.Table, layers: Sequence[Snapshot]) -> pa.Table:
        """Returns those of the rows that the layers do not change."""
        for layer in layers:
            if rows.num_rows and len(layer):
                few = rows.num_rows < len(layer)
                keys = rows.select(self._identity)
                there = (
                    layer.get(self._identity, keys, nulls=True)
                    if few
                    else layer.scan([*self._identity, GONE])
                )
                rows = rows.filter(pc.invert(among(rows, there, self._identity)))
        return rows

    @cached_property
    def _changed(self) -> pa.Table:
        """Returns the last change of each row, deletes included."""
        if not self._layers:
            return self._nothing()
        found = [self._untouched(layer.scan(), self._layers[:at]) for at, layer in enumerate(self._layers)]
        return pa.concat_tables(found)

    def _nothing(self) -> pa.Table:
        rows = [] if self.schema.key else [pa.field(ROW, pa.int64())]
        return pa.schema([*self.schema.arrow(), *rows, pa.field(GONE, pa.bool_())]).empty_table()

    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        self._check_numbers(rows)
        names = None if columns is None else [self._column(name).name for name in columns]
        read = None if names is None else list(dict.fromkeys([*names, *self._identity]))
        return self._shown(self._with_layers(self.base.scan(read)), names, rows=rows)

    def filtered(self, where: Predicate, *, rows: bool = False) -> pa.Table:
        keys = self.keys_in(where)
        if keys is not None:
            return self.get(keys.column_names, keys)
        self._check_numbers(rows)
        return self._shown(self._with_layers(self.base.filtered(where)), rows=rows)

    def _with_layers(self, under: pa.Table) -> pa.Table:
        under = under.filter(pc.invert(among(under, self._changed, self._identity)))
        return pa.concat_tables([under, living(self._changed).select(under.column_names)])

    def _shown(self, found: pa.Table, names: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        """Returns the columns; rows without a key are in the order of their numbers."""
        if not self.schema.key:
            found = found.sort_by(ROW)
        wanted = Schema(tuple(self._column(n) for n in names)) if names is not None else self.schema
        shown = found.select([c.name for c in wanted.columns])
        shown = pa.table(shown.columns, schema=wanted.arrow())
        return shown.append_column(pa.field(ROW, pa.int64()), found[ROW]) if rows else shown

    def _check_numbers(self, rows: bool) -> None:
        if rows and self.schema.key:
            raise NotSupported(f"{self.what} has a primary key: its rows have no numbers")

    def _column(self, name: str) -> Column:
        found = self.schema.find(name)
        if found is None:
            raise UnknownName(
                f'column "{name}" is not in {self.what}', hint=did_you_mean(name, self.schema.names)
            )
        return found

    @cached_property
    def _count(self) -> int:
        if not self._changed.num_rows:
            return self.base.count
        keys = self._changed.select(self._identity)
        there = self.base.get(self._identity, keys, nulls=True).num_rows
        return int(self.base.count - there + living(self._changed).num_rows)

    def __len__(self) -> int:
        return self._count
