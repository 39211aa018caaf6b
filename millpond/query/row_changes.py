"""Combines the rows that an UPDATE, DELETE or MERGE has found into one change of a table: for statements, for the
methods of a table and for batches of running statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes
from millpond.errors import QueryFailed
from millpond.query.row_matches import aligned
from millpond.sql.catalog import Relation
from millpond.sql.fold import identity_columns
from millpond.tables.base import Snapshot


@dataclass(frozen=True, slots=True)
class Piece:
    """Contains rows to delete or to insert, as a part of a mutation finds them."""

    action: Literal["put", "end"]
    identified: bool
    rows: pa.Table


def combine(
    target: Relation, pieces: Sequence[Piece], snapshot: Snapshot, *, new_once: bool, joined: bool = True
) -> tuple[Changes, int]:
    """Returns all pieces as one change, and how many rows it affects. With ``new_once`` no two new rows may have the
    same key; else the last one wins. Unless they are ``joined`` with others, rows of the target are found once.
    """
    ended: list[pa.Table] = []
    put: list[pa.Table] = []
    count = 0
    width = len(identity_columns(target))
    touched: list[pa.Table] = []
    arriving: list[pa.Table] = []
    keys: list[pa.Table] = []
    for piece in pieces:
        rows = piece.rows
        if piece.identified:
            old = _plain_identity(rows.select(list(range(width))), target)
            if piece.action == "end":
                old = old.group_by(old.column_names).aggregate([]) if joined else old
                count += old.num_rows
                ended.append(old)
                continue
            touched.append(old)
            rows = rows.select(list(range(width, rows.num_columns)))
            if target.schema.key:
                moved = _moved(old, rows)
                ended.append(old.filter(moved))
                arriving.append(rows.select(list(target.schema.key)).filter(moved))
            else:
                rows = rows.append_column(ROW, old[ROW])
        elif not target.schema.key:
            rows = rows.append_column(ROW, pa.nulls(rows.num_rows, pa.int64()))
        if target.schema.key and (piece.identified or new_once):
            keys.append(rows.select(list(target.schema.key)))
        count += rows.num_rows
        put.append(rows)
    if joined:
        _each_once(touched, target, "several rows of the source match one row of")
    if target.schema.key and touched and (joined or any(t.num_rows for t in arriving)):
        _each_once(keys, target, "two rows would get one key in")
        _not_taken(arriving, touched, ended, target, snapshot)
    return _combined(target, ended, put), count


def _plain_identity(old: pa.Table, target: Relation) -> pa.Table:
    return old.rename_columns([c.name for c in identity_columns(target)])


def _moved(old: pa.Table, new: pa.Table) -> pa.ChunkedArray:
    """Returns which rows change their key."""
    same = None
    for name in old.column_names:
        equal = pc.fill_null(pc.equal(old[name], new[name].cast(old[name].type)), False)
        same = equal if same is None else pc.and_(same, equal)
    return pc.invert(same)


def _not_taken(
    arriving: list[pa.Table],
    touched: list[pa.Table],
    ended: list[pa.Table],
    target: Relation,
    snapshot: Snapshot,
) -> None:
    """Checks that a key that a row moves to is free, or becomes free."""
    keys = pa.concat_tables(arriving)
    if not keys.num_rows:
        return
    names = list(target.schema.key)
    there = snapshot.get(names, keys).select(names)
    leaving = pa.concat_tables([t.select(names).cast(there.schema) for t in (*touched, *ended)])
    if there.join(leaving, names, join_type="left anti").num_rows:
        raise QueryFailed(
            f'a row of table "{target.name}" would get a key that another row has',
            hint="delete the other row first, or use INSERT, which replaces it",
        )


def _each_once(tables: list[pa.Table], target: Relation, what: str) -> None:
    if not tables:
        return
    everything = pa.concat_tables(tables)
    if everything.num_rows > 1:
        once = everything.group_by(everything.column_names).aggregate([])
        if once.num_rows != everything.num_rows:
            raise QueryFailed(
                f'{what} table "{target.name}"',
                hint="make the condition or the source say which one is meant",
            )


def _combined(target: Relation, ended: list[pa.Table], put: list[pa.Table]) -> Changes:
    schema = target.schema.arrow()
    if not target.schema.key:
        schema = schema.append(pa.field(ROW, pa.int64()))
    gone = pa.concat_tables(ended, promote_options="default") if ended else None
    made = pa.concat_tables([aligned(t, schema) for t in put]) if put else schema.empty_table()
    if gone is None or not gone.num_rows:
        return Changes(made)
    deleted = pa.array([True] * gone.num_rows + [False] * made.num_rows)
    return Changes(pa.concat_tables([aligned(gone, schema), made]), deleted)
