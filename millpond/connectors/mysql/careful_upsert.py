"""Upserts rows into a MySQL table that has other unique columns beside its key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.databases.sql_table import SqlTable
from millpond.connectors.mysql.table_types import decoded, encoded, parameter
from millpond.records.keys import key_list
from millpond.types import whole


def put_one_by_one(
    table: SqlTable, session: Any, rows: pa.Table, insert: Callable[[Any, pa.Table], None]
) -> None:
    """Upserts into a table that has other unique columns too: a row that has those of another one is an error, and
    does not replace the other.
    """
    key = [table.column(name) for name in table.identity]
    given = [whole(rows.column(c.name)) for c in key]
    selected = ", ".join(table.selected(c.name) for c in key)
    found: list[tuple[Any, ...]] = []
    for condition, values in table.with_keys(key, given, nulls=False):
        found += session.query(f"SELECT {selected} FROM {table.table} WHERE {condition} FOR UPDATE", values)
    cells = zip(*found, strict=True) if found else [()] * len(key)
    there = set(
        key_list([decoded(list(v), c.type) for v, c in zip(cells, key, strict=True)]) if found else []
    )
    known = pa.array([one in there for one in key_list(given)], pa.bool_())
    old, new = rows.filter(known), rows.filter(pc.invert(known))
    if new.num_rows:
        insert(session, new)
    keys = [c.name for c in key]
    others = [name for name in rows.column_names if name not in keys]
    if not others or not old.num_rows:
        return
    sets = ", ".join(f"{n} = %s" for n in table.quoted(others))
    same = " AND ".join(f"{n} = {parameter(c)}" for n, c in zip(table.quoted(keys), key, strict=True))
    columns = [table.column(name) for name in (*others, *keys)]
    for row in zip(*(encoded(old.column(c.name), c.type) for c in columns), strict=True):
        session.execute(f"UPDATE {table.table} SET {sets} WHERE {same}", row)
