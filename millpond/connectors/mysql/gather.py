"""Collects rows of a binary log by column, until they are a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.connectors.cdc.log import ADDED, EMPTIED, ENDED, MOVED, PUT, log_schema
from millpond.connectors.mysql.cells import Decode, array_of
from millpond.connectors.mysql.events import DELETES, PARTIAL_UPDATE, UPDATES, lenenc
from millpond.connectors.mysql.rows import cutter, sizes_of
from millpond.connectors.mysql.table_map import Field, TableMap
from millpond.connectors.mysql.transactions import Step
from millpond.errors import BadData, CaptureRefused
from millpond.types import Schema, type_name

BATCH = 65_536


@dataclass(frozen=True, slots=True)
class Reading:
    """Describes how a column of the log is read: the name of its type in the database, and its character set."""

    field: Field
    made: str
    decode: Decode | None


@dataclass(frozen=True, slots=True)
class Layout:
    """Describes where the columns of a schema are in the rows of a map; a missing one is None."""

    map: TableMap
    columns: tuple[Reading | None, ...]
    places: tuple[int, ...]
    """The indexes of the columns that exist."""
    keys: tuple[int, ...]
    """The indexes of the key."""


class Gather:
    """Takes steps in order, and returns batches of ``log_schema``."""

    def __init__(self, schema: Schema, layout: Callable[[TableMap], Layout]):
        self._schema = schema
        self._arrow = log_schema(schema)
        self._layout_of = layout
        self._layout: Layout | None = None
        self._cells: list[list[bytes | None]] = []
        self._ops: list[int] = []

    def all(self, steps: Sequence[Step]) -> Iterator[pa.RecordBatch]:
        for step in steps:
            if step.map is None:
                self._ops.append(EMPTIED)
                for cells in self._cells:
                    cells.append(None)
                continue
            if self._layout is None or self._layout.map is not step.map:
                yield from self._given()
                self._layout = self._layout_of(step.map)
                self._cells = [[None] * len(self._ops) for _ in self._layout.places]
            self._take(step, self._layout)
            if len(self._ops) >= BATCH:
                yield from self._given()
        yield from self._given()

    def _take(self, step: Step, layout: Layout) -> None:
        body, kind = step.body, step.kind
        at = _start(body, kind, layout.map)
        sizes = sizes_of(layout.map.fields)
        if kind not in UPDATES:
            before = len(self._cells[0]) if self._cells else 0
            cutter(sizes, None, layout.places)(body, at, len(body), [], self._cells)
            came = len(self._cells[0]) - before
            self._ops += [ENDED if kind in DELETES else ADDED] * came
            return
        keyed = bool(layout.keys)
        was_places = layout.keys if keyed else layout.places
        was: list[list[Any]] = [[] for _ in was_places]
        now: list[list[Any]] = [[] for _ in layout.places]
        cutter(sizes, was_places, layout.places)(body, at, len(body), was, now)
        of_key = [now[layout.places.index(k)] for k in layout.keys]
        if keyed and was == of_key:
            for cells, more in zip(self._cells, now, strict=True):
                cells += more
            self._ops += [PUT] * len(now[0])
            return
        self._pairs(layout, was, now, of_key)

    def _pairs(
        self, layout: Layout, was: list[list[Any]], now: list[list[Any]], of_key: list[list[Any]]
    ) -> None:
        """Handles updates of which some have moved a row to another key, or of rows that no key distinguishes."""
        keyed = bool(layout.keys)
        places = layout.keys if keyed else layout.places
        old = {p: cells for p, cells in zip(places, was, strict=True)}
        for i in range(len(now[0])):
            if not keyed or any(a[i] != b[i] for a, b in zip(was, of_key, strict=True)):
                for cells, place in zip(self._cells, layout.places, strict=True):
                    cells.append(old[place][i] if place in old else None)
                self._ops.append(MOVED if keyed else ENDED)
            for cells, new in zip(self._cells, now, strict=True):
                cells.append(new[i])
            self._ops.append(PUT)

    def _given(self) -> Iterator[pa.RecordBatch]:
        count = len(self._ops)
        if not count:
            return
        arrays = []
        cells = iter(self._cells)
        for number, column in enumerate(self._schema):
            reading = self._layout.columns[number] if self._layout is not None else None
            if reading is None:
                arrays.append(pa.nulls(count, column.type))
                continue
            found = array_of(reading.field, reading.made, reading.decode, next(cells))
            arrays.append(_fitted(found, column.name, column.type))
        arrays.append(pa.array(self._ops, pa.int8()))
        arrays.append(pa.nulls(count, self._arrow.field(len(arrays)).type))
        self._ops, self._cells = [], [[] for _ in self._cells]
        yield pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


def _fitted(found: pa.Array, name: str, dtype: pa.DataType | None) -> pa.Array:
    if found.type == dtype:
        return found
    try:
        return found.cast(dtype)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadData(
            f'column "{name}" is {type_name(found.type)} in the database and {type_name(dtype)} here: {error}'
        ) from None


def _start(body: bytes, kind: int, table: TableMap) -> int:
    """Returns where the rows of an event begin. Rows of which not all columns are logged are refused."""
    at = 8 if kind < 30 else 8 + int.from_bytes(body[8:10], "little")
    count, at = lenenc(body, at)
    size = (count + 7) // 8
    for _ in range(2 if kind in UPDATES else 1):
        present = int.from_bytes(body[at : at + size], "little")
        if present != (1 << count) - 1 or kind == PARTIAL_UPDATE:
            raise CaptureRefused(
                f'rows of "{table.schema}.{table.table}" are logged in parts',
                hint="SET GLOBAL binlog_row_image = 'FULL' (and in every session that has set it), and"
                " binlog_row_value_options = '', then load the table again",
            )
        at += size
    return at
