"""Finds which change of a column a statement makes."""

from __future__ import annotations

from millpond.alterations import (
    AddedColumn,
    ColumnChange,
    DefaultedColumn,
    DroppedColumn,
    RenamedColumn,
    RetypedColumn,
)
from millpond.query.column_defaults import check_defaults, defaulted, value_of
from millpond.query.evaluate import Evaluator
from millpond.sql import statements as st
from millpond.sql.catalog import Relation


def change_of(action: st.AlterAction, after: Relation, evaluator: Evaluator) -> ColumnChange:
    """Returns the change of a column that a statement makes; ``after`` is the table as it is then."""
    match action:
        case st.AddColumn(column, _):
            added = after.schema.find(column.name)
            assert added is not None
            return AddedColumn(added, value_of(column, added, evaluator))
        case st.RenameColumn(old, new):
            return RenamedColumn(old, new)
        case st.DropColumn(name, _):
            return DroppedColumn(name)
        case st.RetypeColumn(name, dtype):
            return RetypedColumn(name, dtype)
        case st.SetDefault(name, _):
            check_defaults(defaulted(action, after.schema), after.schema, evaluator)
            changed = after.schema.find(name)
            assert changed is not None
            return DefaultedColumn(changed.name, changed.default)
    raise ValueError(f"{action} changes no column")
