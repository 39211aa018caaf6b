"""Runs statements that change one row by its key: one function for each, which takes the values of its text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from millpond.lookup import Run
from millpond.predicates import Given
from millpond.query.result import Count
from millpond.query.table_writer import Writer
from millpond.records.values import Unfit
from millpond.sql.keyed_statements import KeyedWrite

_COUNTS = (Count(0), Count(1))


def compile_write(write: KeyedWrite, writer: Writer, elsewhere: Callable[[], bool], *, strict: bool) -> Run:
    """Returns the function by which ``writer`` makes the change. It returns None, or raises Unfit, if the values, or a
    thread that writes ``elsewhere``, need the general path; then nothing has changed.
    """
    row = write.row
    if write.action == "put":
        assert row is not None
        put_record = writer.put

        def put(*values: Any) -> Count | None:
            if elsewhere() or put_record(row({}, *values), strict) is None:
                return None
            return _COUNTS[1]

        return put
    key_of = _key_of(write.key)
    if write.action == "drop":

        def drop(*values: Any) -> Count | None:
            count = None if elsewhere() else writer.drop(key_of(values))
            return None if count is None else _COUNTS[count]

        return drop

    assert row is not None

    def patch(*values: Any) -> Count | None:
        count = None if elsewhere() else writer.patch(key_of(values), lambda record: row(record, *values))
        return None if count is None else _COUNTS[count]

    return patch


def _key_of(key: tuple[Given, ...]) -> Any:
    return (
        partial(_value, key[0]) if len(key) == 1 else lambda values: tuple([_value(g, values) for g in key])
    )


def _value(given: Given, values: tuple[Any, ...]) -> Any:
    if type(values[given.at]) is not given.kind:
        raise Unfit("a value of another kind")
    return given.value(values)
