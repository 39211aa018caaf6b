"""Implements what sinks have in common that write rows to a table of a database: their options, and where it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import pyarrow as pa

from millpond.changelog import Style
from millpond.changes import Changes
from millpond.connectors.databases.uri import address_of, options_in, query_without, split_query
from millpond.connectors.named_columns import named_columns
from millpond.connectors.sink import DELIVERY, Sink
from millpond.connectors.source import DELETED
from millpond.errors import ConfigurationIssue, ConnectionLost, InvalidOption
from millpond.options import Option
from millpond.types import Schema, whole

ROWS_OPTIONS = (
    Option("table", "text", "the table to write to: name, or schema.name; or the last part of the URI"),
    Option(
        "key",
        "text",
        "the columns that identify rows, separated by commas: a row replaces the one with the same key",
    ),
    Option(
        "mode",
        "choice",
        "append: each row is added. upsert: by 'key'. By default upsert if there is a key",
        None,
        ("append", "upsert"),
    ),
    DELIVERY,
    Option("connect.timeout", "duration", "the time to open a connection", 10.0),
    Option("retry.timeout", "duration", "how long a lost connection is retried before it is an error", 30.0),
)


class RowsSink(Sink):
    """Writes rows to a table. ``columns`` are those of the table, with the key if rows are upserted."""

    for_clients: ClassVar[bool] = False
    keyed: ClassVar[bool] = False
    takes_changes: ClassVar[Style] = "key"
    options: ClassVar[tuple[Option, ...]] = ROWS_OPTIONS

    def __init__(self, uri: str, values: Mapping[str, Any], schema: Schema):
        super().__init__(uri, values, schema)
        self.values |= self.named_in(uri)
        self.exact = self.is_exact(self.values)
        self.columns = self.columns_of(self.values, schema)

    @classmethod
    def named_in(cls, uri: str) -> dict[str, object]:
        """Returns the options that the URI sets."""
        found = options_in(uri, cls.options)[0]
        if "delivery" in found:
            raise InvalidOption(
                'option "delivery" is not read from a URI', hint="… SELECT … WITH ('delivery' = '…')"
            )
        return found

    @classmethod
    def columns_of(cls, values: Mapping[str, Any], schema: Schema) -> Schema:
        columns = tuple(c for c in schema if c.name != DELETED)
        named = named_columns("key", values["key"], [c.name for c in columns])
        if values["mode"] == "upsert" and not named:
            raise InvalidOption('option "mode" cannot be "upsert" without a key', hint="name it: 'key' = '…'")
        return Schema(columns, named if values["mode"] != "append" else ())

    @classmethod
    def check_statement(cls, uri: str, values: Mapping[str, Any], schema: Schema, *, running: bool) -> None:
        values = {**values, **cls.named_in(uri)}
        cls.columns_of(values, schema)
        cls.target(uri, values)

    @classmethod
    def check_groups(cls, uri: str, values: Mapping[str, Any], schema: Schema) -> None:
        if not cls.columns_of({**values, **cls.named_in(uri)}, schema).key:
            raise InvalidOption(
                "groups of an aggregate change, and are written by their key",
                hint="name the columns of the group: 'key' = '…'",
            )

    @classmethod
    def check_changes(cls, uri: str, values: Mapping[str, Any], schema: Schema) -> None:
        if not cls.columns_of({**values, **cls.named_in(uri)}, schema).key:
            raise InvalidOption(
                'changes of a table are written by key: option "mode" cannot be "append"',
                hint="leave 'mode' out, or write a log of the changes to a file or a topic",
            )

    @classmethod
    def target(cls, uri: str, values: Mapping[str, Any]) -> tuple[str, str]:
        """Returns the URL of the database, and the table."""
        address = address_of(uri, names_rows=values["table"] is not None)
        table = values["table"] or address.table
        if not table:
            raise InvalidOption(f'"{uri}" names no table', hint="…/database?table=…, or …/database/table")
        before, _ = split_query(uri)
        if address.table is not None:
            before = before.rstrip("/").rpartition("/")[0]
        if address.host is None and address.table is not None:  # scheme://database/table
            before = f"{uri.partition(':')[0]}:///{address.database}"
        return before + query_without(uri, cls.options), table

    @classmethod
    def is_exact(cls, values: Mapping[str, Any]) -> bool:
        return bool(values.get("delivery") != "at-least-once")

    @property
    def guarantee(self) -> str:
        if self.exact:
            return "exactly once: the rows of a batch and the position are one transaction of the database"
        if self.columns.key:
            return (
                f"idempotent by {_listed(self.columns.key)}: a batch that a crash cuts off is written again"
            )
        return "at least once: a batch that a crash cuts off is written again"

    @property
    def writer(self) -> str:
        how = f"upserts by {_listed(self.columns.key)}" if self.columns.key else "appends"
        return f"the driver, which {how}"


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)


class TableSink(RowsSink, Generic[T]):
    """Writes rows through an object that is open between two errors. ``_owner`` is who it was when it was last open for
    the query ``_name``, if anybody.
    """

    def __init__(self, uri: str, values: Mapping[str, Any], schema: Schema):
        super().__init__(uri, values, schema)
        self.url, self.table = self.target(uri, self.values)
        self._table: T | None = None
        self._is_open = False
        self._name = ""
        self._owner: Any = None

    @property
    def is_open(self) -> bool:
        return self._is_open

    def _opened(self) -> T:
        if self._table is None:
            raise ConnectionLost(f'"{self.uri}" is not open')
        return self._table

    def _write_for(self, name: str) -> None:
        """Forgets who was the owner, unless it was so for the same query."""
        if name != self._name:
            self._name, self._owner = name, None

    @contextmanager
    def _whoever_tries_again_takes_over(self) -> Iterator[None]:
        """Forgets that this was the owner, if another process is."""
        try:
            yield
        except ConfigurationIssue:
            self._owner = None
            raise

    @contextmanager
    def _writing(self) -> Iterator[T]:
        """Provides the table for one write; after an error it must be opened again."""
        table, self._is_open = self._opened(), False
        with self._whoever_tries_again_takes_over():
            yield table
        self._is_open = True

    def close(self) -> None:
        table, self._table, self._is_open = self._table, None, False
        if table is not None:
            table.close()


def changes_of(rows: pa.Table) -> Changes:
    """Returns rows of a query as changes: those that it marks are deleted."""
    if DELETED not in rows.column_names:
        return Changes(rows)
    return Changes(rows.drop_columns([DELETED]), whole(rows.column(DELETED)).fill_null(False))


def taken_over(table: str) -> ConfigurationIssue:
    """Returns the error of a sink that another process has opened since, for the same query."""
    return ConfigurationIssue(
        f'another process writes to table "{table}" for this query',
        hint="end one of the two: both use the same state directory, or a copy of it. START QUERY goes on here",
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
