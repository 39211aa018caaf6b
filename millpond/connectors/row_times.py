"""Decides whether a table in a database stores when each of its rows was last changed, and in which column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.errors import NotSupported

if TYPE_CHECKING:
    from millpond.connectors.databases.sql_table import SqlTable
    from millpond.connectors.table import OutsideTable

TIME = "millpond_at"
"""The column with the time of the last change of a row, in microseconds since 1970."""


def micros(time: float) -> pa.Array:
    """Returns an array with a time as the column for it has it."""
    return pa.array([round(time * 1_000_000)], pa.int64())


def with_time(rows: pa.Table, time: float) -> pa.Table:
    return rows.append_column(TIME, pa.repeat(micros(time)[0], rows.num_rows))


def refuse_hidden(table: OutsideTable) -> None:
    """Raises an error if a declared column has the name of the one for times, and there is one."""
    if table.times and TIME in table.schema:
        raise NotSupported(
            f'{table.what}: "{TIME}" is the column for the time of the last change of its rows',
            hint="give yours another name, or name a column with a time: 'ttl.column'",
        )


def without_times(what: str, where: str) -> NotSupported:
    """Returns the error for a table that exists, and was created without times."""
    return NotSupported(
        f"{what}: the table in the {where} does not store when a row was last changed: others have created it, or it"
        " was created without 'ttl'",
        hint="name a column with a time: 'ttl.column' = 'at'; or give it another name there, with 'table'",
    )


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
