"""Turns changed rows into the changes of the table that contains them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isclose
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes
from millpond.sql.incremental.nodes import is_key
from millpond.tables.base import Snapshot
from millpond.types import Schema
from millpond.views.expressions import picker
from millpond.views.operators.base import Recompute
from millpond.views.rows import Delta, Row, rows_of, table_of

_FEW = 64
_SAMPLE = 10_000
"""Rows by which columns are compared."""
_ENOUGH = 0.1
"""The share of rows with different values at which a column finds a row well enough."""


class TargetRows:
    """Finds the rows of a view's table that changes replace. Raises Recompute if one is not there."""

    def __init__(self, schema: Schema):
        self._schema = schema
        self._names = list(schema.names)
        self._types: list[pa.DataType] = [c.type for c in schema if c.type is not None]
        self._places = [self._names.index(c.name) for k in schema.key if (c := schema.find(k)) is not None]
        self._columns: list[int] | None = None
        self.indexed = True
        """Whether rows without a key are found by an index; otherwise all are read, which for one change is less."""

    def forget(self) -> None:
        """Forgets what is known of the rows: many have changed."""
        self._columns = None

    def prepare(self, own: Snapshot) -> None:
        """Builds what finds rows without a key: the next change does not have to."""
        self.indexed = True
        if not self._places and len(own) > _FEW:
            build_index(own, [self._names[c] for c in self._chosen(own)])

    def _chosen(self, own: Snapshot) -> list[int]:
        """Returns the columns by which rows without a key are found: those with the most different values."""
        if self._columns is not None:
            return self._columns
        rows = own.scan()
        if rows.num_rows > _SAMPLE:
            rows = rows.take(pa.array(np.arange(0, rows.num_rows, rows.num_rows // _SAMPLE)))
        usable = [i for i, t in enumerate(self._types) if is_key(t)]
        counts = {i: pc.count_distinct(rows.column(self._names[i]), mode="all").as_py() for i in usable}
        best = sorted(usable, key=lambda i: -counts[i])
        good = best and counts[best[0]] >= _ENOUGH * rows.num_rows
        self._columns = best[:1] if good else best[:3]
        return self._columns

    def columns(self, own: Snapshot) -> list[str]:
        """Returns the names of the columns by which rows without a key are found."""
        return [self._names[c] for c in self._chosen(own)]

    def changes(self, delta: Delta, own: Snapshot) -> Changes:
        return self._keyed(delta, own) if self._places else self._numbered(delta, own)

    def _keyed(self, delta: Delta, own: Snapshot) -> Changes:
        key = picker(self._places)
        touched: dict[Row, dict[Row, int]] = {}
        for row, weight in delta:
            counts = touched.setdefault(key(row), {})
            counts[row] = counts.get(row, 0) + weight
        before: dict[Row, Row] = {}
        for row in rows_of(self._found(own, self._places, list(touched)), self._names):
            before[key(row)] = row
        gone: list[Row] = []
        put: list[Row] = []
        for value, counts in touched.items():
            there = before.get(value)
            if there is not None:
                known = there if there in counts else _nearly(there, counts)
                counts[known] = counts.get(known, 0) + 1
            left = {row: n for row, n in counts.items() if n}
            if sum(left.values()) > 1 or any(n < 0 for n in left.values()):
                raise Recompute("a key has several rows, or a row that was not there")
            if not left:
                gone += [] if there is None else [there]
            else:
                (new,) = left
                put += [] if new == there else [new]
        return self._made(gone, put, None)

    def _numbered(self, delta: Delta, own: Snapshot) -> Changes:
        wanted = {row: -weight for row, weight in delta if weight < 0}
        put = [row for row, weight in delta for _ in range(weight)]
        gone: list[Row] = []
        numbers: list[int] = []
        if wanted:
            columns = self._chosen(own) if len(own) > _FEW else []
            if columns:
                keys = {tuple([row[c] for c in columns]) for row in wanted}
                found = (self._found if self.indexed else self._picked)(own, columns, list(keys), rows=True)
            else:
                found = own.scan(rows=True)
            left = []
            for row, number in zip(rows_of(found, self._names), found.column(ROW).to_pylist(), strict=True):
                if wanted.get(row):
                    wanted[row] -= 1
                    gone.append(row)
                    numbers.append(number)
                else:
                    left.append((row, number))
            for row, number in self._near(left, wanted):
                gone.append(row)
                numbers.append(number)
            if any(wanted.values()):
                raise Recompute("a row that leaves is not there")
        return self._made(gone, put, numbers)

    def _near(self, left: list[tuple[Row, int]], wanted: dict[Row, int]) -> Iterator[tuple[Row, int]]:
        """Yields rows that are nearly those that are wanted and not found, and takes these off."""
        missing = [row for row, n in wanted.items() if n]
        exact = picker([i for i, t in enumerate(self._types) if not pa.types.is_floating(t)])
        if not missing or not any(map(pa.types.is_floating, self._types)):
            return
        by_value: dict[Row, dict[Row, int]] = {}
        for row in missing:
            by_value.setdefault(exact(row), {})[row] = -1
        for row, number in left:
            known = _nearly(row, by_value.get(exact(row), {}))
            if wanted.get(known):
                wanted[known] -= 1
                by_value[exact(row)][known] = -1 if wanted[known] else 0
                yield row, number

    def _found(
        self, own: Snapshot, places: Sequence[int], keys: list[Row], *, rows: bool = False
    ) -> pa.Table:
        names = [self._names[c] for c in places]
        wanted = table_of(keys, names, [self._types[c] for c in places])
        return own.get(names, wanted, nulls=True, rows=rows)

    def _picked(self, own: Snapshot, places: Sequence[int], keys: list[Row], *, rows: bool) -> pa.Table:
        """Returns at least the rows that ``_found`` returns, by reading all."""
        found = own.scan(rows=rows)
        for at, place in enumerate(places):
            values = pa.array([key[at] for key in keys], self._types[place])
            found = found.filter(pc.is_in(found.column(self._names[place]), value_set=values))
        return found

    def _made(self, gone: list[Row], put: list[Row], numbers: list[int] | None) -> Changes:
        rows = table_of([*gone, *put], self._names, self._types).cast(self._schema.arrow())
        if numbers is not None:
            rows = rows.append_column(ROW, pa.array([*numbers, *([None] * len(put))], pa.int64()))
        deleted = pa.array([True] * len(gone) + [False] * len(put), pa.bool_()) if gone else None
        return Changes(rows, deleted)


def _nearly(row: Row, counts: Mapping[Row, int]) -> Row:
    """Returns the row that leaves, which has a count below 0, and whose numbers with a floating point differ from those
    of ``row`` at most in the last digits: the query has rounded them in another order. Otherwise ``row``.
    """
    if not any(type(value) is float for value in row):
        return row
    return next((w for w, n in counts.items() if n < 0 and all(map(_is_near, w, row))), row)


def _is_near(a: Any, b: Any) -> bool:
    if type(a) is float and type(b) is float:
        return a is b or isclose(a, b, rel_tol=1e-12)
    return bool(a == b)


def build_index(table: Snapshot, names: Sequence[str]) -> None:
    """Lets a table build its index on some columns, unless it has it."""
    types = [c.type for name in names if (c := table.schema.find(name)) is not None and c.type is not None]
    if names:
        table.get(list(names), table_of([], names, types), nulls=True)
