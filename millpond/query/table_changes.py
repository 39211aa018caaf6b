"""Finds what an update or a delete of a table changes, on the current rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.changes import ROW, Changes
from millpond.errors import Closed, InvalidRecord, did_you_mean
from millpond.query.conditions import Compiler, Condition, UpdateSet
from millpond.query.overlay import Overlay
from millpond.query.row_changes import Piece, combine
from millpond.records import to_arrow, to_rows
from millpond.tables.base import Snapshot
from millpond.types import Schema

Found = tuple[Changes | None, int]
"""The changes, None if there are none, and how many rows they affect."""
Step = Callable[[Snapshot], Found]
"""Finds the changes that one of several conditions causes in the rows."""


class Widened(Closed):
    """Is raised if the table has columns that what was compiled does not know: it would lose their values."""


def change_compiled(
    compile: Callable[[Compiler], Step],
    current: Callable[[], Compiler],
    change: Callable[[Step], int],
) -> int:
    """Makes the changes of a step that is compiled for the columns that the table has when it is made."""
    while True:
        compiler = current()
        try:
            return change(compile(compiler))
        except Widened:
            if current() is compiler:
                raise


def inserted(view: Snapshot, rows: pa.Table, what: str) -> Found:
    """Returns the rows, for a table that refuses an existing key."""
    view.refuse_taken(rows, what)
    return Changes(rows), rows.num_rows


def updated(
    compiler: Compiler, view: Snapshot, condition: Condition | None, equal: Mapping[str, Any], sets: UpdateSet
) -> Found:
    """Returns the found rows, with the update applied."""
    schema = compiler.relation.schema
    if any(name not in schema for name in view.schema.names):
        raise Widened(f"{compiler.what} has new columns", hint="get it again from its app: app.table(…)")
    old = compiler.matching(view, condition, equal, rows=not schema.key)
    if not old.num_rows:
        return None, 0
    return _one(compiler, view, Piece("put", True, sets.apply(old)))


def deleted(
    compiler: Compiler, view: Snapshot, condition: Condition | None, equal: Mapping[str, Any]
) -> Found:
    """Returns the deletion of the found rows."""
    key = compiler.relation.schema.key
    old = compiler.matching(view, condition, equal, rows=not key)
    return _one(compiler, view, Piece("end", True, old.select(list(key or (ROW,)))))


def _one(compiler: Compiler, view: Snapshot, piece: Piece) -> Found:
    """Returns the change of found rows, as UPDATE and DELETE make it."""
    if not piece.rows.num_rows:
        return None, 0
    return combine(compiler.relation, [piece], view, new_once=True, joined=False)


def deleted_keys(view: Snapshot, keys: pa.Table) -> Found:
    """Returns the deletion of the rows with these keys."""
    there = view.get(keys.column_names, keys).select(keys.column_names)
    return _ends(there), there.num_rows


def in_turn(view: Snapshot, steps: Sequence[Step]) -> Found:
    """Returns what the steps change, each on the rows that the ones before it leave, as one change; a row is counted
    each time.
    """
    overlay, count = Overlay(view), 0
    for step in steps:
        changes, touched = step(overlay)
        count += touched
        if changes is not None:
            overlay.stage(changes)
    return (overlay.changes() if overlay.changed else None), count


def conditional_pairs(records: Sequence[Any], what: str) -> list[tuple[Any, Any]]:
    """Returns the pairs of a condition and changes that a bulk update gets; none if it gets records. Raises
    InvalidRecord for anything else."""
    pairs = [pair for pair in records if not isinstance(pair, Mapping)]
    if pairs and (len(pairs) < len(records) or not all(isinstance(p, tuple) and len(p) == 2 for p in pairs)):
        raise InvalidRecord(
            f"a bulk update of {what} takes records, or pairs of a condition and changes",
            hint='bulk_update([("age > 65", {"tier": "GOLD"})])',
        )
    return pairs


def check_fields(schema: Schema, records: Sequence[Mapping[str, Any]], what: str) -> None:
    """Raises InvalidRecord if a record names a field that does not exist."""
    for row, record in enumerate(records):
        for name in record:
            if name not in schema:
                raise InvalidRecord(
                    f'row {row} for {what}: field "{name}" is not in it',
                    row=row,
                    field=name,
                    hint=did_you_mean(name, schema.names),
                )


def merged(schema: Schema, view: Snapshot, records: Sequence[Mapping[str, Any]], what: str) -> Found:
    """Returns the rows with the records' keys, with the records' fields in place of theirs; each row is
    counted once.
    """
    fields = [{_declared(schema, name): value for name, value in r.items()} for r in records]
    for row, record in enumerate(fields):
        missing = [k for k in schema.key if record.get(k) is None]
        if missing:
            raise InvalidRecord(
                f'row {row} for {what}: the key "{missing[0]}" is missing', row=row, field=missing[0]
            )
    key_part = Schema(tuple(c for k in schema.key if (c := schema.find(k)) is not None))
    keys = to_arrow(key_part, [{k: r[k] for k in schema.key} for r in fields], what=what)
    current = {_key(schema, row): row for row in to_rows(view.get(list(schema.key), keys))}
    touched: dict[str, dict[str, Any]] = {}
    for named, record in zip(to_rows(keys), fields, strict=True):
        at = _key(schema, named)
        if at in current:
            touched[at] = {**touched.get(at, current[at]), **record}
    if not touched:
        return None, 0
    # The view may have columns that were added to the table since.
    return Changes(to_arrow(view.schema, list(touched.values()), what=what)), len(touched)


def _declared(schema: Schema, name: str) -> str:
    column = schema.find(name)
    return name if column is None else column.name


def _key(schema: Schema, row: Mapping[str, Any]) -> str:
    return repr([row[k] for k in schema.key])


def _ends(rows: pa.Table) -> Changes | None:
    return Changes(rows, pa.repeat(True, rows.num_rows)) if rows.num_rows else None
