"""Finds out how a declared table becomes another one without losing its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millpond.alterations import AddedColumn, ColumnChange, DefaultedColumn, RetypedColumn
from millpond.errors import NotSupported, SqlError, TypeMismatch
from millpond.query.column_defaults import value_of
from millpond.query.evaluate import Evaluator
from millpond.sql import statements as st
from millpond.sql.catalog import Relation
from millpond.sql.printer import print_name
from millpond.sql.typing.widening import widens
from millpond.store.catalog import without_secrets
from millpond.types import Schema, type_name


def column_changes(before: Relation, after: Relation, s: st.CreateTable) -> list[str]:
    """Returns the names of the columns that are new, or get a wider type or another DEFAULT. Raises an error if the
    rows of the table cannot have the columns of the statement.
    """
    table, old, new = before.name, before.schema, after.schema
    if [k.lower() for k in old.key] != [k.lower() for k in new.key]:
        raise SqlError(
            f'the primary key of table "{table}" cannot change',
            hint="create another table with that key, and INSERT INTO it SELECT … FROM this one",
            place=s.place,
        )
    gone = [c.name for c in old if c.name not in new]
    if gone:
        raise NotSupported(
            f'table "{table}" has column "{gone[0]}", which is not in the statement: its values would be lost',
            hint=f"ALTER TABLE {print_name(table)} DROP COLUMN {print_name(gone[0])}, or RENAME COLUMN it, first",
            place=s.place,
        )
    changed = []
    for at, column in enumerate(new):
        known = old.find(column.name)
        if known is None:
            changed.append(column.name)
            continue
        if at >= len(old) or old.columns[at] is not known:
            raise NotSupported(
                f'column "{column.name}" of table "{table}" cannot move: new columns come last', place=s.place
            )
        if known.type != column.type:
            if known.type is None or column.type is None or not widens(known.type, column.type):
                raise TypeMismatch(
                    f'column "{known.name}" is {type_name(known.type)}, of which {type_name(column.type)} does not'
                    " have every value",
                    hint="a type can become wider: INT to BIGINT, FLOAT to DOUBLE, DECIMAL to one with more digits",
                    place=s.place,
                )
            changed.append(column.name)
        elif known.default != column.default:
            changed.append(column.name)
        if replace(known, type=column.type, name=column.name, default=column.default) != column:
            raise NotSupported(
                f'NOT NULL of column "{known.name}" of table "{table}" cannot change', place=s.place
            )
    return changed


def as_spelled(wanted: Schema, known: Schema) -> Schema:
    """Returns the wanted columns with the names of those that exist as they are spelled there."""
    columns = (
        replace(c, name=there.name) if (there := known.find(c.name)) is not None else c for c in wanted
    )
    return Schema(tuple(columns), known.key)


def changes_of(
    names: list[str], before: Relation, after: Relation, s: st.CreateTable, evaluator: Evaluator
) -> list[ColumnChange]:
    """Returns the changes that make the named columns of a table those of the statement."""
    made: list[ColumnChange] = []
    for name in names:
        column = after.schema.find(name)
        assert column is not None
        declared = next(c for c in s.columns if c.name.lower() == name.lower())
        value = value_of(declared, column, evaluator)
        known = before.schema.find(name)
        if known is not None:
            assert column.type is not None
            made += [RetypedColumn(known.name, column.type)] if known.type != column.type else []
            made += [DefaultedColumn(known.name, column.default)] if known.default != column.default else []
            continue
        if not column.nullable and not value[0].is_valid:
            raise SqlError(
                f'column "{name}" is NULL in the rows of table "{before.name}", and is declared NOT NULL',
                hint="give it a DEFAULT, or leave out NOT NULL",
                place=declared.place,
            )
        made.append(AddedColumn(column, value))
    return made


def changed_options(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that get other values."""
    there, wanted = without_secrets(known), without_secrets(wanted)
    names = (there.keys() | wanted.keys()) - {"primary.key", "anchor"}
    return {name: wanted.get(name) for name in names if there.get(name) != wanted.get(name)}
