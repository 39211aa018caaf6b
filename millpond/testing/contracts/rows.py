"""Contains what the tests of tables share: schemas, rows, and where tables live."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.changes import Changes
from millpond.options import read_options, settings_of
from millpond.records import to_arrow, to_rows
from millpond.tables import Backend, find_backend
from millpond.types import Column, Schema

Make = Callable[..., Backend]

ITEMS = Schema(
    (
        Column("id", pa.int64()),
        Column("Name", pa.string()),
        Column("tier", pa.string()),
        Column("qty", pa.int32()),
    ),
    ("id",),
)
LOG = Schema(ITEMS.columns)
PAIRS = Schema(
    (Column("a", pa.int32()), Column("b", pa.string()), Column("v", pa.float64())),
    ("a", "b"),
)


@dataclass(frozen=True)
class TablePlace:
    """Contains the options of tables that live together: the ``backend`` by its name, its ``settings`` as SQL gives
    them, and the state directory.
    """

    backend: str
    settings: Mapping[str, str]
    home: Path

    def open(self, name: str, schema: Schema, **more: Any) -> Backend:
        backend = find_backend(self.backend)
        values = read_options(f'table "{name}"', backend.options, settings_of(self.settings))
        return backend.open(name, schema, values, home=self.home, **more)


class TableSuite:
    """Opens the tables of a test. A subclass has a fixture ``new_place``, which makes places that nothing has used."""

    @pytest.fixture
    def make(self, new_place: Callable[[], TablePlace]) -> Iterator[Make]:
        """Opens tables, each in a place of its own unless one is given."""
        opened: list[Backend] = []

        def open_table(schema: Schema = ITEMS, place: TablePlace | None = None, **more: Any) -> Backend:
            table = (place or new_place()).open("t", schema, **more)
            opened.append(table)
            return table

        yield open_table
        for table in opened:
            table.close()


def changes(schema: Schema, *records: dict[str, Any], deleted: list[bool] | None = None) -> Changes:
    gone = None if deleted is None else pa.array(deleted, pa.bool_())
    return Changes(to_arrow(Schema(schema.columns), list(records), what="the table"), gone)


def item(
    id: int | None, name: str | None = None, tier: str | None = None, qty: int | None = None
) -> dict[str, Any]:
    return {"id": id, "Name": name, "tier": tier, "qty": qty}


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(to_rows(table), key=repr)


def keys(dtype: pa.DataType, *values: Any) -> pa.Table:
    return pa.table({"k": pa.array(values, dtype)})


def by_id(table: Any, *ids: int | None) -> list[dict[str, Any]]:
    return rows(table.get(["id"], keys(pa.int64(), *ids)))
