"""Accesses private parts of DuckDB: how it runs a statement whose result is Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

_BATCH_ROWS = 131_072


def table_of(connection: Any, sql: str) -> pa.Table:
    """Returns the result of a SELECT. ``connection.sql`` would bind it once more, to know its columns before it runs;
    for a small query that takes longer than to run it.
    """
    submit = _submit(connection)
    if submit is None:
        return connection.sql(sql).to_arrow_table()
    return submit(sql, None, "arrow", _BATCH_ROWS).arrow_table()


def reader_of(connection: Any, sql: str, rows: int) -> pa.RecordBatchReader:
    """Returns a reader of the result of a SELECT, which produces so many rows at a time."""
    submit = _submit(connection)
    if submit is None:
        return connection.sql(sql).to_arrow_reader(rows)
    return submit(sql, None, "stream", rows).arrow_reader()


def _submit(connection: Any) -> Callable[..., Any] | None:
    """Returns what runs one statement; None in a version of DuckDB that has another way."""
    try:
        found: Callable[..., Any] = connection._submit
    except AttributeError:
        return None
    return found
