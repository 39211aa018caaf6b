"""A table of a program becomes one of an app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.connectors.memory.source import memory_uri
from millpond.errors import AlreadyExists, NotSupported
from millpond.types import Schema, quote

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.query.table import Table


def attach(app: App, name: str, table: Table) -> None:
    """Makes the table of that name, or finds it, gives it the rows in one commit, and hands the program the app's."""
    if not table.alone:
        raise NotSupported(
            f'table "{table.name}" is one of an app already',
            hint=f"another app reads {memory_uri(table.name)}",
        )
    known = app._catalog.find(name)
    if known is None:
        app._ask(f"CREATE TABLE {quote(name)} {table.declaration}", None)
    elif known.kind != "table" or not _same(known.schema, table.schema):
        raise AlreadyExists(
            f'{known.kind} "{known.name}" already exists, with other columns than the table has',
            hint="attach it under another name",
        )
    rows = table.snapshot().to_arrow()
    with app.begin_transaction() as transaction:
        if known is not None:
            transaction.sql(f"DELETE FROM {quote(name)}")
        if rows.num_rows:
            transaction.table(name).bulk_insert(rows)
    table.become(app.table(name))


def _same(one: Schema, other: Schema) -> bool:
    return one.arrow().equals(other.arrow()) and one.key == other.key
