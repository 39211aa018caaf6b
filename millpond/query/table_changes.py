"""Finds what an update or a delete of a table changes, on the rows as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.changes import ROW, Changes
from millpond.errors import InvalidRecord, did_you_mean
from millpond.query.conditions import Compiler, Condition, UpdateSet
from millpond.query.overlay import Overlay
from millpond.records import to_arrow, to_rows
from millpond.tables.base import Snapshot
from millpond.types import Schema

Found = tuple[Changes | None, int]
"""The changes, None if there are none, and how many rows they touch."""
Step = Callable[[Snapshot], Found]
"""Finds the changes that one of several conditions makes of the rows."""


def inserted(view: Snapshot, rows: pa.Table, what: str) -> Found:
    """Returns the rows, as rows of a table that refuses a key that is there."""
    view.refuse_taken(rows, what)
    return Changes(rows), rows.num_rows


def updated(
    compiler: Compiler, view: Snapshot, condition: Condition | None, equal: Mapping[str, Any], sets: UpdateSet
) -> Found:
    """Returns the rows that are found, as the update makes them."""
    schema = compiler.relation.schema
    old = compiler.matching(view, condition, equal, rows=not schema.key)
    if not old.num_rows:
        return None, 0
    new = sets.apply(old)
    ended = _moved(schema, view, old, new, compiler.what) if sets.moves_key else None
    return _together(ended, new), old.num_rows


def deleted(
    compiler: Compiler, view: Snapshot, condition: Condition | None, equal: Mapping[str, Any]
) -> Found:
    """Returns the end of the rows that are found."""
    schema = compiler.relation.schema
    old = compiler.matching(view, condition, equal, rows=not schema.key)
    return _ends(old.select(list(schema.key or (ROW,)))), old.num_rows


def deleted_keys(view: Snapshot, keys: pa.Table) -> Found:
    """Returns the end of the rows with these keys."""
    there = view.get(keys.column_names, keys).select(keys.column_names)
    return _ends(there), there.num_rows


def in_turn(view: Snapshot, steps: Sequence[Step]) -> Found:
    """Returns what the steps change, each on the rows that the ones before it leave, as one change; a row counts
    each time."""
    overlay, count = Overlay(view), 0
    for step in steps:
        changes, touched = step(overlay)
        count += touched
        if changes is not None:
            overlay.stage(changes)
    return (overlay.changes() if overlay.version else None), count


def check_fields(schema: Schema, records: Sequence[Mapping[str, Any]], what: str) -> None:
    """Raises InvalidRecord if a record names a field that is not there."""
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
    """Returns the rows with the records' keys, with the records' fields in place of theirs; each row counts once."""
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
    return Changes(to_arrow(schema, list(touched.values()), what=what)), len(touched)


def _declared(schema: Schema, name: str) -> str:
    column = schema.find(name)
    return name if column is None else column.name


def _key(schema: Schema, row: Mapping[str, Any]) -> str:
    return repr([row[k] for k in schema.key])


def _moved(schema: Schema, view: Snapshot, old: pa.Table, new: pa.Table, what: str) -> pa.Table | None:
    """Returns the keys that no row has any more. Raises InvalidRecord if two rows would get one key."""
    names = list(schema.key)
    before = [repr(r) for r in to_rows(old.select(names))]
    after = [repr(r) for r in to_rows(new.select(names))]
    there = {repr(r) for r in to_rows(view.get(names, new.select(names)).select(names))}
    if len(set(after)) < len(after) or there - set(before):
        raise InvalidRecord(f"two rows of {what} would get one key", field=names[0])
    arrived = set(after)
    gone = [key not in arrived for key in before]
    return old.select(names).filter(pa.array(gone, pa.bool_()))


def _ends(rows: pa.Table) -> Changes | None:
    return Changes(rows, pa.repeat(True, rows.num_rows)) if rows.num_rows else None


def _together(ended: pa.Table | None, new: pa.Table) -> Changes:
    if ended is None or not ended.num_rows:
        return Changes(new)
    rows = pa.concat_tables([ended, new], promote_options="default")
    gone = pa.concat_arrays([pa.repeat(True, ended.num_rows), pa.repeat(False, new.num_rows)])
    return Changes(rows.select(new.column_names), gone)
