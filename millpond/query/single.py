"""Runs statements that change one row by its key: a function for each, which takes the values of its text."""

from __future__ import annotations

from functools import partial
from typing import Any

from millpond.lookup import Given, Run
from millpond.query.home import Home
from millpond.query.result import Count
from millpond.records.values import Unfit
from millpond.sql.keyed import KeyedWrite


def compile_write(write: KeyedWrite, home: Home, *, strict: bool) -> Run:
    """Returns the function that makes the change at ``home``. It answers None, or raises Unfit, where the values
    need the long way; then nothing has changed."""
    row = write.row
    if write.action == "put":

        def put(*values: Any) -> Count | None:
            assert row is not None
            done = home.put(row({}, *values), strict)
            return None if done is None else Count(1)

        return put
    key_of = _key_of(write.key)
    if write.action == "drop":

        def drop(*values: Any) -> Count | None:
            count = home.drop(key_of(values))
            return None if count is None else Count(count)

        return drop

    def patch(*values: Any) -> Count | None:
        assert row is not None
        count = home.patch(key_of(values), lambda record: row(record, *values))
        return None if count is None else Count(count)

    return patch


def _key_of(key: tuple[Given, ...]) -> Any:
    return (
        partial(_value, key[0]) if len(key) == 1 else lambda values: tuple([_value(g, values) for g in key])
    )


def _value(given: Given, values: tuple[Any, ...]) -> Any:
    if type(values[given.at]) is not given.kind:
        raise Unfit("a value of another kind")
    return given.value(values)
