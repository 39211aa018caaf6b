"""Decides whether a table in a database stores when each of its rows was last changed, and in which column."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from millpond.errors import NotSupported
from millpond.types import Schema

TIME = "millpond_at"
"""The column with the time of the last change of a row, in microseconds since 1970."""


class Timed(Protocol):
    """Represents a table that may have the column."""

    what: str
    schema: Schema
    times: bool


def micros(time: float) -> pa.Array:
    """Returns an array with a time as the column for it has it."""
    return pa.array([round(time * 1_000_000)], pa.int64())


def with_time(rows: pa.Table, time: float) -> pa.Table:
    return rows.append_column(TIME, pa.repeat(micros(time)[0], rows.num_rows))


def refuse_hidden(table: Timed) -> None:
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
