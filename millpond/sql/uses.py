"""Finds which statements use a column of a table."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.sql.checked import (
    Checked,
    CheckedInsert,
    CheckedSelect,
    CheckedStreamAs,
    CheckedTableAs,
    CheckedView,
)
from millpond.sql.statement_text import place_of_word


def uses_column(checked: Checked, table: str, column: str, *, drops: bool) -> bool:
    """Returns whether a statement reads or writes a column of a table. A statement that is no plain query uses it if
    its text has that name.
    """
    name, wanted = table.lower(), column.lower()
    if isinstance(checked, CheckedInsert):
        if checked.target.name.lower() == name:
            named = [c.lower() for c in checked.statement.columns]
            if wanted in named or (drops and not named):
                return True
    elif not isinstance(checked, CheckedTableAs | CheckedStreamAs | CheckedView | CheckedSelect):
        return place_of_word(checked.statement, column) is not None
    return any(wanted == c.name.lower() for c in _columns_of(checked, name))


def _columns_of(checked: Checked, table: str) -> Iterator[exp.Column]:
    """Yields the columns of a table in the queries of a statement."""
    for query in checked.queries:
        aliases = {
            alias.lower()
            for i in query.inputs
            if (i.relation.rows_of or i.relation.name).lower() == table
            for alias in (i.alias, i.view)
        }
        for found in query.expression.find_all(exp.Column):
            if found.table.lower() in aliases:
                yield found
