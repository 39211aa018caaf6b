"""Checks 'ttl' and 'ttl.column' of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.errors import Error, InvalidOption, NotSupported, Place, TypeMismatch, UnknownName, did_you_mean
from millpond.options import Setting, find_option
from millpond.sql.catalog import Relation
from millpond.sql.options import TTL_OPTIONS
from millpond.types import type_name


def check_expiry(
    relation: Relation,
    values: Mapping[str, Any],
    settings: Sequence[Setting],
    follows: str | None,
    *,
    timed: bool,
) -> Iterator[Error]:
    """Yields what is wrong with the options of a table, which is ``timed`` if it can remember when each row was last
    changed. ``follows`` says what its rows always follow, if they do: a row
    that is removed would be missing there, or come back.
    """
    if "ttl.column" not in values:
        return  # the backend has a 'ttl' of its own
    time, column = (
        next((s for s in settings if find_option(TTL_OPTIONS, s.name) is o), None) for o in TTL_OPTIONS
    )
    if time is None:
        if column is not None:
            hint = "say how long: 'ttl' = '7d'"
            yield InvalidOption("'ttl.column' needs 'ttl'", hint=hint, place=column.place)
        return
    if values["ttl"] <= 0:
        yield InvalidOption(
            f'option "{time.name}" of table "{relation.name}" must be greater than 0', place=time.place
        )
    if follows is not None:
        hint = "remove the rows that it is made from: 'ttl' of a table, 'retention' of windows"
        yield NotSupported(
            f"table \"{relation.name}\" {follows}: it has no '{time.name}'", hint=hint, place=time.place
        )
    elif column is not None:
        yield from _check_column(relation, column.value, column.place)
    elif not timed:
        yield NotSupported(
            f'table "{relation.name}" does not store when a row was last changed',
            hint="name a column with a time: 'ttl.column' = 'at'",
            place=time.place,
        )


def _check_column(relation: Relation, name: str, place: Place | None) -> Iterator[Error]:
    found = relation.schema.find(name)
    if found is None:
        names = relation.schema.names
        yield UnknownName(
            f'column "{name}" of \'ttl.column\' is not in table "{relation.name}"',
            hint=did_you_mean(name, names, f"its columns: {', '.join(names)}"),
            place=place,
        )
    elif found.type is not None and not (pa.types.is_timestamp(found.type) or pa.types.is_date(found.type)):
        yield TypeMismatch(
            f"'ttl.column' is for a TIMESTAMP or DATE, \"{found.name}\" is {type_name(found.type)}",
            place=place,
        )
