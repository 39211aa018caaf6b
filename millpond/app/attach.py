"""Attaches a table of a program to an app."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millpond.connectors.memory.source import memory_uri
from millpond.errors import AlreadyExists, NotSupported
from millpond.sql.catalog import Catalog
from millpond.types import Schema, quote

if TYPE_CHECKING:
    from millpond.query.result import Result
    from millpond.query.table import Table
    from millpond.query.transaction import Transaction


def attach(
    name: str,
    table: Table,
    catalog: Catalog,
    sql: Callable[[str], Result],
    begin: Callable[[], Transaction],
    find: Callable[[str], Table],
) -> None:
    """Creates or finds the table, replaces its rows in one commit, and makes the program's object that table."""
    if not table.alone:
        raise NotSupported(
            f'table "{table.name}" is one of an app already',
            hint=f"another app reads {memory_uri(table.name)}",
        )
    known = catalog.find(name)
    if known is None:
        sql(f"CREATE TABLE {quote(name)} {table.declaration}")
    elif known.kind != "table" or not _same(known.schema, table.schema):
        raise AlreadyExists(
            f'{known.kind} "{known.name}" already exists, with other columns than the table has',
            hint="attach it under another name",
        )
    rows = table.snapshot().to_arrow()
    with begin() as transaction:
        if known is not None:
            transaction.sql(f"DELETE FROM {quote(name)}")
        if rows.num_rows:
            transaction.table(name).bulk_insert(rows)
    table.become(find(name))


def _same(one: Schema, other: Schema) -> bool:
    return one.arrow().equals(other.arrow()) and one.key == other.key
