"""Converts records to Arrow: dicts, or Arrow data, to a table of exactly a schema's columns.

The hot path is a list of dicts with every field spelled as declared: one C-level pass per column for the values and one
for their types (about 100 ns a cell in all). Anything else is inspected only if that fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidRecord, did_you_mean
from millpond.records.cast import conform
from millpond.records.columns import BadValue, column, first_null
from millpond.records.values import shown
from millpond.types import Schema


def to_arrow(
    schema: Schema, records: Sequence[Mapping[str, Any]] | pa.Table | pa.RecordBatch, *, what: str
) -> pa.Table:
    """Returns the records as a table with exactly the schema's columns and types, in their order.

    A missing field is NULL; names ignore case. An unknown field, a value that does not fit or would lose something, or
    a NULL in a key or NOT NULL column raises InvalidRecord with the row's index and the field; then nothing is stored.
    ``what`` names the target in messages: ``stream "trades"``.
    """
    if isinstance(records, (pa.Table, pa.RecordBatch)):
        table = conform(schema, records, what=what)
    else:
        table = _from_dicts(schema, records if isinstance(records, list) else list(records), what)
    check_nulls(schema, table, what=what)
    return table


def check_nulls(schema: Schema, table: pa.Table, *, what: str) -> None:
    """Raises InvalidRecord if a key or NOT NULL column of ``table`` contains a NULL."""
    keys = {k.lower() for k in schema.key}
    for at, declared in enumerate(schema.columns):
        if declared.nullable and declared.name.lower() not in keys:
            continue
        row = first_null(table.column(at))
        if row is not None:
            role = "a primary key" if declared.name.lower() in keys else "declared NOT NULL"
            raise InvalidRecord(
                f'row {row} for {what}: field "{declared.name}" is NULL or missing, but it is {role}',
                row=row,
                field=declared.name,
            )


def _from_dicts(schema: Schema, records: list[Any], what: str) -> pa.Table:
    fields = schema.arrow()
    gathered = _gather(schema.names, records)
    if gathered is None:
        tidy = _tidy(schema, records, what)
        gathered = [[r.get(name) for r in tidy] for name in schema.names]
    arrays = []
    for declared, values in zip(fields, gathered, strict=True):
        try:
            arrays.append(column(values, declared.type))
        except BadValue as e:
            name = ".".join((declared.name, *e.path)).replace(".[", "[")
            raise InvalidRecord(
                f'row {e.row} for {what}: field "{name}": {e.reason}', row=e.row, field=name, hint=e.hint
            ) from None
    if not arrays:
        return fields.empty_table()
    return pa.Table.from_arrays(arrays, schema=fields)


def _gather(names: Sequence[str], records: list[Any]) -> list[list[Any]] | None:
    """Returns the values by column if all records are dicts with fields spelled as declared, else None."""
    if set(map(type, records)) - {dict}:
        return None
    if set(map(len, records)) == {len(names)}:
        try:
            return [list(map(itemgetter(name), records)) for name in names]
        except KeyError:
            return None
    if set(chain.from_iterable(records)) <= set(names):
        return [[r.get(name) for r in records] for name in names]
    return None


def _tidy(schema: Schema, records: list[Any], what: str) -> list[dict[str, Any]]:
    """Returns the records with their fields spelled as declared."""
    tidy = []
    spelled: dict[str, str] = {}
    for row, record in enumerate(records):
        if not isinstance(record, Mapping):
            raise InvalidRecord(f"row {row} for {what}: {shown(record)} is not a dict", row=row)
        taken: dict[str, Any] = {}
        for name, value in record.items():
            declared = spelled.get(name)
            if declared is None:
                known = schema.find(name) if isinstance(name, str) else None
                if known is None:
                    raise InvalidRecord(
                        f'row {row} for {what}: field "{name}" is not in {what}',
                        row=row,
                        field=str(name),
                        hint=did_you_mean(str(name), schema.names, f"its fields: {', '.join(schema.names)}"),
                    )
                declared = spelled[name] = known.name
            if declared in taken:
                raise InvalidRecord(
                    f'row {row} for {what}: field "{declared}" is given twice', row=row, field=declared
                )
            taken[declared] = value
        tidy.append(taken)
    return tidy
