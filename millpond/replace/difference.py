"""Makes the view that compares a table with the one that is built beside it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from millpond.errors import NotSupported
from millpond.sql.catalog import Relation
from millpond.sql.checked import CheckedView
from millpond.sql.identity import identity
from millpond.sql.parse import parse
from millpond.sql.printer import print_name
from millpond.sql.reserved_names import difference_of
from millpond.sql.statements import CreateView
from millpond.sql.typing.coercion import is_numeric
from millpond.statements.script import Checks
from millpond.store.catalog import SavedRelation, saved
from millpond.types import Column, Schema


def difference(before: Relation, after: Relation, checks: Checks) -> tuple[SavedRelation, Relation]:
    """Returns the view with the rows that only one of two tables has, and its journal entry. Rows are compared by the
    columns that both tables have.
    """
    columns = [c.name for c in before.schema if _compared(c, after.schema)]
    if not columns:
        raise NotSupported(
            f'the new form of table "{before.name}" has no column in common with it: they cannot be compared',
            hint="change it without --shadow",
        )
    marked = "only_in"
    while marked in before.schema:
        marked += "_"
    rows = ", ".join(map(print_name, columns))
    old, new = (f"SELECT {rows} FROM {print_name(table.name)}" for table in (before, after))
    text = (
        f"CREATE VIEW {print_name(difference_of(before.name))} AS"
        f" SELECT 'old' AS {marked}, {rows} FROM ({old} EXCEPT ALL {new})"
        f" UNION ALL SELECT 'new' AS {marked}, {rows} FROM ({new} EXCEPT ALL {old})"
    )
    parsed = parse(text)
    (statement,) = parsed.require()
    assert isinstance(statement, CreateView)
    named = replace(statement, name=f"{statement.name}$")  # a statement cannot have the name itself
    checked = checks.anew(named, parsed.script.place)
    assert isinstance(checked, CheckedView)
    relation = replace(checked.relation, name=statement.name)
    return replace(saved(checked, identity(statement)), name=relation.name), relation


def _compared(column: Column, other: Schema) -> bool:
    """Returns whether the values of a column can be compared with those of the column of that name."""
    found = other.find(column.name)
    if found is None or column.type is None or found.type is None or column.hidden or found.hidden:
        return False
    if _has_map(column.type):
        return False
    return column.type == found.type or (is_numeric(column.type) and is_numeric(found.type))


def _has_map(dtype: pa.DataType) -> bool:
    if pa.types.is_map(dtype):
        return True
    return any(_has_map(dtype.field(i).type) for i in range(dtype.num_fields))
