"""Finds what a statement names outside the app: files, hosts, topics, by a URI or by an option."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from sqlglot import exp

from millpond.errors import Place
from millpond.options import Setting
from millpond.sql import statements as st
from millpond.sql.uris import is_uri


@dataclass(frozen=True, slots=True)
class Named:
    """Represents a URI, or the value of the option ``option``. ``written`` says that the statement writes to it."""

    text: str
    place: Place | None
    option: str | None = None
    written: bool = False


def named_outside(statement: st.Statement) -> Iterator[Named]:
    """Yields every URI that a statement reads or writes, and all its options: the caller decides which of them name
    something. Texts that are only values of rows are not included.
    """
    match statement:
        case st.Insert(target_is_uri=True):
            yield Named(statement.target, statement.place, written=True)
        case st.Describe() | st.DescribeHistory() if is_uri(statement.name):
            yield Named(statement.name, statement.place)
        case st.ExplainUpgrade():
            yield Named(f"file://{statement.path}", statement.place)
    for field in fields(statement):
        yield from _within(getattr(statement, field.name), statement.place)


def _within(value: Any, place: Place | None) -> Iterator[Named]:
    if isinstance(value, st.Statement):
        yield from named_outside(value)
    elif isinstance(value, Setting):
        yield Named(value.value, value.place or place, value.name.lower())
    elif isinstance(value, exp.Expr):
        for table in value.find_all(exp.Table):
            if table.meta.get("uri") or is_uri(table.name):
                yield Named(table.name, place)
    elif isinstance(value, tuple):
        for item in value:
            yield from _within(item, place)
    elif is_dataclass(value) and not isinstance(value, Place):
        for field in fields(value):
            yield from _within(getattr(value, field.name), place)
