"""Finds how the columns of a table that is stored become those that a file declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from millpond.alterations import AddedColumn, ColumnChange, DroppedColumn, RenamedColumn, RetypedColumn
from millpond.sql.typing.widening import widens
from millpond.types import Column, Schema, type_name
from millpond.upgrade.decisions import Altered, Kept, Refused

ValueOf = Callable[[Column], pa.Array]
"""Returns an array with the one value that a new column has in the rows before it."""
_ANOTHER = "create another table, and INSERT INTO it SELECT … FROM this one"


def compare_columns(before: Schema, after: Schema, value_of: ValueOf) -> Kept | Altered | Refused:
    """Returns what must change so that a table with rows gets the columns of ``after``."""
    if _key(before) != _key(after):
        listed = [", ".join(s.key) or "no key" for s in (before, after)]
        return Refused(f"its primary key changes from {listed[0]} to {listed[1]}", _ANOTHER)
    changes: list[ColumnChange] = []
    reasons: list[str] = []
    loses = False
    shown = [c for c in before if not c.hidden]
    for column in shown:
        if column.name not in after:
            changes.append(DroppedColumn(column.name))
            reasons.append(f'column "{column.name}" is dropped with its values')
            loses = True
    for column in after:
        known = before.find(column.name)
        if known is None or known.hidden:
            continue
        refused = _refused(known, column, before)
        if refused is not None:
            return refused
        if known.name != column.name:
            changes.append(RenamedColumn(known.name, column.name))
            reasons.append(f'column "{known.name}" is spelled "{column.name}"')
        if known.type != column.type and column.type is not None:
            changes.append(RetypedColumn(column.name, column.type))
            reasons.append(f'column "{column.name}" becomes {type_name(column.type)}')
        if known.default != column.default:
            reasons.append(f'column "{column.name}" has another DEFAULT')
        if not known.nullable and column.nullable:
            reasons.append(f'column "{column.name}" may be NULL')
    for column in after:
        there = before.find(column.name)
        if there is not None and not there.hidden:
            continue
        if not column.nullable and column.default is None:
            return Refused(
                f'column "{column.name}" is new and NOT NULL: it has no value in the rows that are there',
                "give it a DEFAULT, or leave out NOT NULL",
            )
        changes.append(AddedColumn(column, value_of(column)))
        reasons.append(f'column "{column.name}" is added')
    made = before
    for change in changes:
        made = change.schema(made)
    if [n.lower() for n in _names(made)] != [n.lower() for n in _names(after)]:
        return Refused(
            f"its columns have another order: {', '.join(_names(made))} is what the rows that are there can have",
            "write the columns in that order: new ones come last",
        )
    return Altered(", ".join(reasons), tuple(changes), loses) if reasons else Kept()


def altered_schema(before: Schema, after: Schema) -> Schema:
    """Returns the columns of ``after`` with the hidden ones of ``before``, which no file declares."""
    hidden = tuple(c for c in before if c.hidden and c.name not in after)
    return replace(after, columns=(*after.columns, *hidden)) if hidden else after


def _refused(known: Column, column: Column, before: Schema) -> Refused | None:
    if known.type != column.type and column.type is not None:
        types = f"from {type_name(known.type)} to {type_name(column.type)}"
        if known.name.lower() in _key(before):
            return Refused(f'column "{known.name}" of its primary key changes {types}', _ANOTHER)
        if known.type is None or not widens(known.type, column.type):
            return Refused(
                f'column "{known.name}" changes {types}, which does not have every value',
                f"a type can become wider: INT to BIGINT, FLOAT to DOUBLE; else {_ANOTHER}",
            )
    if known.nullable and not column.nullable and known.name.lower() not in _key(before):
        return Refused(
            f'column "{known.name}" becomes NOT NULL, and rows that are there may have NULL in it',
            f"leave out NOT NULL, or {_ANOTHER}",
        )
    return None


def _key(schema: Schema) -> tuple[str, ...]:
    return tuple(k.lower() for k in schema.key)


def _names(schema: Schema) -> list[str]:
    return [c.name for c in schema if not c.hidden]
