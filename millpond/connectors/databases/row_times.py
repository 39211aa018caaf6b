"""Finds and makes the column with the time of the last change of a row in tables of SQL databases."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.connectors.databases.sql_table import SqlTable
from millpond.connectors.row_times import TIME, refuse_hidden, without_times


def find_times(table: SqlTable, there: Sequence[str]) -> None:
    """Notes whether the table has times: one that exists, with the columns ``there``, stays as it was created."""
    if there:
        has = table.made and TIME in (name.lower() for name in there)
        if table.times and not has:
            raise without_times(table.what, table.where)
        table.times = has
    refuse_hidden(table)


def index_times(table: SqlTable, session: object) -> None:
    """Creates the index by which old rows are found, in a new table."""
    if table.times:
        table.add_index(session, table.index_name((TIME,)), (TIME,), wait=True)
