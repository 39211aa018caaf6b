"""Declares how the rows of a table are changed, and implements it for a table without an app."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from millpond.changes import Changes
from millpond.errors import InvalidOption, NotSupported, UnknownName, did_you_mean
from millpond.options import read_options, settings_of
from millpond.query.stats import Health
from millpond.query.table_changes import Found
from millpond.query.transaction_table import Begun, LoneTransaction
from millpond.sql.filters import parse_columns
from millpond.sql.options import ON_CONFLICT
from millpond.tables.base import Patch, Snapshot
from millpond.tables.memory import MemoryTable
from millpond.types import Schema, quote, type_name

Record = Mapping[str, Any]


class Writer(Protocol):
    """Changes the rows of a table: in an app, or without one."""

    def commit(self, changes: Changes) -> object:
        """Applies the changes, all or none."""

    def change(self, find: Callable[[Snapshot], Found]) -> int:
        """Applies what ``find`` computes on the newest rows, with no other change in between; returns its count."""

    def put(self, record: Record, fresh: bool) -> bool | None:
        """Adds one record on a fast path, with ``fresh`` only if its key does not exist; returns None if there is no
        fast path for it.
        """

    def patch(self, key: Any, changes: Patch) -> int | None:
        """Changes the record with a key on a fast path and returns how many there were; None as ``put``."""

    def drop(self, key: Any) -> int | None:
        """Deletes the record with a key on a fast path and returns how many there were; None as ``put``."""

    @property
    def now(self) -> Writer:
        """Returns the same for a thread that must not wait: ``put``, ``patch`` and ``drop`` return None if
        they would.
        """

    def begin(self) -> Begun:
        """Begins a transaction that includes the table."""

    def health(self) -> tuple[str, Health]:
        """Returns the kind of source that fills the table, and its health."""

    def followed(self) -> dict[str, Any]:
        """Returns how far the table is behind what it follows outside, if it does."""


class LocalWriter:
    """Changes the rows of a table without an app."""

    def __init__(self, name: str, backend: MemoryTable):
        self.commit = backend.apply
        self.change = backend.change
        self.put = backend.put_record
        self.patch = backend.patch_record
        self.drop = backend.drop_record
        self.begin = partial(LoneTransaction, name, backend)

    @property
    def now(self) -> Writer:
        return self

    def health(self) -> tuple[str, Health]:
        return "program", Health("healthy", "its rows come from this program")

    def followed(self) -> dict[str, Any]:
        return {}


def no_spark(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Raises an error: without an app there is no Spark for what DuckDB cannot evaluate as Spark would."""
    raise NotSupported(
        "this expression is answered by Spark, and the table has no app", hint="make the table in an App"
    )


def table_options(schema: Schema, options: Mapping[str, str], what: str) -> dict[str, Any]:
    """Returns the values of the options of a table without an app."""
    values = read_options(what, (ON_CONFLICT, *MemoryTable.options), settings_of(options))
    if values["on.conflict"] == "error" and not schema.key:
        raise InvalidOption(f"{what} has no primary key: 'on.conflict' has no meaning", hint="give it a key")
    return values


def declaration_of(schema: Schema, options: Mapping[str, str]) -> str:
    """Returns what follows the name in the CREATE TABLE of such a table."""
    columns = [
        f"{quote(c.name)} {type_name(c.type)}"
        + ("" if c.nullable else " NOT NULL")
        + ("" if c.default is None else f" DEFAULT {c.default}")
        for c in schema
    ]
    if schema.key:
        columns.append(f"PRIMARY KEY ({', '.join(map(quote, schema.key))})")
    settings = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
    return f"({', '.join(columns)})" + (f" WITH ({settings})" if settings else "")


def declared(columns: Mapping[str, str] | str | Schema, key: str | Sequence[str]) -> Schema:
    """Returns the schema of a table that a program declares."""
    if isinstance(columns, Schema):
        schema = columns
    elif isinstance(columns, str):
        schema = parse_columns(columns)
    else:
        schema = parse_columns(", ".join(f"{quote(name)} {dtype}" for name, dtype in columns.items()))
    named = (key,) if isinstance(key, str) else tuple(key)
    spelled = []
    for part in named or schema.key:
        column = schema.find(part)
        if column is None:
            raise UnknownName(f'the key column "{part}" is not there', hint=did_you_mean(part, schema.names))
        spelled.append(column.name)
    return Schema(schema.columns, tuple(spelled))
