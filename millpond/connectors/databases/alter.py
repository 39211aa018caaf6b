"""Changes the columns of a table in a SQL database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from millpond.alterations import (
    AddedColumn,
    DroppedColumn,
    RenamedColumn,
    RetypedColumn,
    TableChange,
    WidenedColumns,
)
from millpond.connectors.databases.sql_table import SqlTable
from millpond.connectors.row_times import refuse_hidden
from millpond.errors import NotSupported
from millpond.types import Column

T = TypeVar("T", bound=SqlTable)


class Altering:
    """Says how the columns of tables change in one kind of database."""

    def columns_there(self, table: Any, session: Any) -> list[str]:
        """Returns the names of the columns that the table has there now."""
        return list(table.columns_there(session))

    def drop_indexes(self, table: SqlTable, session: Any, column: str) -> None:
        """Drops the indexes that lookups have created with a column that changes."""
        for columns in table.indexed:
            if column in columns:
                table.remove_index(session, table.index_name(columns))

    def check_retype(self, table: SqlTable, column: Column, dtype: pa.DataType) -> None:
        """Raises NotSupported if the database would not have the values of a column in that type."""

    def adding(self, table: SqlTable, column: Column) -> str:
        """Returns what follows ADD COLUMN: NULL is allowed there, since old rows get their value after that."""
        return table.definition(replace(column, nullable=True))

    def retyping(self, table: SqlTable, column: Column) -> list[str]:
        """Returns what follows ALTER TABLE, to give a column its type."""
        return [f"ALTER COLUMN {table.quoted([column.name])[0]} TYPE {table.type_there(column)}"]


def altered(table: T, change: TableChange, way: Altering) -> T:
    """Changes the columns there, and returns the table that has them. Snapshots of the old one have its columns."""
    if "alter" not in table.abilities:
        raise NotSupported(f"the columns of {table.what} belong to others", hint="change them there")
    made = copy(table)
    made.schema, made.kept = change.schema(table.schema), None
    refuse_hidden(made)
    made.stored = stored_after(table, change, [c.name for c in made.columns])
    made.indexed = {i for i in table.indexed if all(c in made.schema for c in i)}
    made.refused = set()

    def work(writing: Any) -> None:
        session = writing.session
        for sql in table.before_drop:
            session.execute(sql)
        if isinstance(change, RenamedColumn | DroppedColumn):
            way.drop_indexes(table, session, table.column(change.name).name)
        there = way.columns_there(table, session)
        for sql, values in alter_statements(way, table, made, change, there):
            session.execute(sql, values)

    table.database.end_forgotten()
    table.database.write(work)
    return made


def alter_statements(
    way: Altering, before: SqlTable, after: SqlTable, change: TableChange, there: Sequence[str]
) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yields the statements, with their values, that make the change in a table with the columns ``there``; none for
    what is made already.
    """
    known = {name.lower() for name in there}
    alter = f"ALTER TABLE {after.table}"
    match change:
        case AddedColumn() | WidenedColumns():
            for column in after.columns:
                if column.name not in before.stored and after.stored[column.name].lower() not in known:
                    yield f"{alter} ADD COLUMN {way.adding(after, column)}", ()
            if isinstance(change, AddedColumn) and change.value[0].is_valid:
                name = after.quoted([change.name])[0]
                values = after.encode(change.value, change.column)
                yield f"UPDATE {after.table} SET {name} = {after.mark} WHERE {name} IS NULL", values
        case RenamedColumn(old, new):
            if before.stored[before.column(old).name] in there:
                yield f"{alter} RENAME COLUMN {before.quoted([old])[0]} TO {after.quoted([new])[0]}", ()
        case DroppedColumn(name):
            if before.stored[before.column(name).name].lower() in known:
                yield f"{alter} DROP COLUMN {before.quoted([name])[0]}", ()
        case RetypedColumn(name, dtype):
            way.check_retype(before, before.column(name), dtype)
            for action in way.retyping(after, after.column(name)):
                yield f"{alter} {action}", ()


def stored_after(before: SqlTable, change: TableChange, names: Sequence[str]) -> dict[str, str]:
    """Returns the names in the database of the columns that the table has after the change."""
    known = {name.lower(): at for name, at in before.stored.items()}
    renamed = change.new.lower() if isinstance(change, RenamedColumn) else None
    return {
        name: before.name_there(name)
        if name.lower() == renamed
        else known.get(name.lower(), before.name_there(name))
        for name in names
    }
