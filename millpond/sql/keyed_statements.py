"""Recognises statements that change one row by its key: INSERT of one row of VALUES, UPDATE and DELETE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlglot import exp

from millpond.lookup import RowFunction
from millpond.predicates import Given
from millpond.sql import statements as st
from millpond.sql.catalog import Relation
from millpond.sql.checked import Checked, CheckedMutation, CheckedValues
from millpond.sql.fold import identity_columns
from millpond.sql.lookup import key_values
from millpond.sql.mutation import Mutation
from millpond.sql.resolve import Resolved
from millpond.sql.rowwise import row_function


@dataclass(frozen=True, slots=True)
class KeyedWrite:
    """Describes a change of one row. ``put`` adds the row that ``row`` builds; ``patch`` changes the columns that
    ``row`` builds in the row with the key; ``drop`` deletes that row. ``key`` is in the order of the table's key.
    """

    table: str
    action: Literal["put", "patch", "drop"]
    key: tuple[Given, ...] = ()
    row: RowFunction | None = None


def keyed_write_of(checked: Checked, values: Sequence[Any]) -> KeyedWrite | None:
    """Returns what a statement changes, if its literals were bound from parameters ``__v0``, … with such values; None
    for any other statement.
    """
    match checked:
        case CheckedValues(target=target, rows=(cells,)) if target.kind == "table":
            row = row_function(dict(zip(target.schema.names, cells, strict=True)), target.schema, values)
            return None if row is None else KeyedWrite(target.name, "put", row=row)
        case CheckedMutation(statement=st.Update() | st.Delete() as statement, mutation=mutation):
            return _changed(statement, mutation, values)
    return None


def _changed(
    statement: st.Update | st.Delete, mutation: Mutation, values: Sequence[Any]
) -> KeyedWrite | None:
    if len(mutation.parts) != 1 or statement.source is not None or statement.returning:
        return None
    target, query = mutation.target, mutation.parts[0].query
    names = target.schema.key
    found = key_values(query, values, names) if names else None
    if found is None or found[1]:
        return None
    key = found[0]
    if isinstance(statement, st.Delete):
        return KeyedWrite(target.name, "drop", key)
    cells = assigned_cells(target, query)
    row = row_function(cells, target.schema, values) if not set(cells) & set(names) else None
    return None if row is None else KeyedWrite(target.name, "patch", key, row)


def assigned_cells(target: Relation, query: Resolved) -> dict[str, exp.Expr]:
    """Returns what an UPDATE sets, from the query that finds its rows: the columns that change."""
    outputs = list(query.expression.expressions)[len(identity_columns(target)) :]
    return {c.name: o for c, o in zip(target.schema, outputs, strict=True) if not _is_itself(o, c.name)}


def _is_itself(output: exp.Expr, name: str) -> bool:
    value = output.unalias()
    while isinstance(value, exp.Paren):
        value = value.this
    return isinstance(value, exp.Column) and value.name == name
