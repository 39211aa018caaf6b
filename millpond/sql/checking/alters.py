"""Checks ALTER TABLE: which columns the table has after it."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millpond.changes import ROW
from millpond.errors import NotSupported, SqlError, TypeMismatch, UnknownName, did_you_mean
from millpond.sql import statements as st
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checked import Checked
from millpond.sql.checked_commands import CheckedAlter, CheckedSwap
from millpond.sql.checking.cascades import ResolverOf, cascade_views
from millpond.sql.defaults import declared_columns
from millpond.sql.printer import print_name
from millpond.sql.reserved_names import check_free, shadow_of
from millpond.sql.resolve.resolver import Resolver
from millpond.sql.typing.widening import widens
from millpond.types import Column, Schema, type_name


def check_alter(catalog: Catalog, s: st.AlterTable, resolver_of: ResolverOf) -> Checked:
    """Returns the checked statement, and changes the catalog as it does. Raises its error."""
    table = catalog.find(s.name)
    if table is None:
        raise catalog.unknown(s.name, "table", s.place)
    if table.kind != "table":
        raise SqlError(f'"{table.name}" is a {table.kind}, not a table', place=s.place)
    if isinstance(s.action, st.SwapTable):
        _check_shadow(catalog, table, s.action.name, s)
        return CheckedSwap(s, table)
    if table.live:
        raise not_alterable(table.name, s)
    after = _after(catalog, s, table, resolver_of(catalog))
    if s.cascade:
        catalog.version = cascade_views(catalog, table, s, resolver_of).version
    if after.name != table.name:
        catalog.remove(table.name)
    catalog.add(after)
    return CheckedAlter(s, table, after)


def not_alterable(table: str, s: st.Statement) -> NotSupported:
    """Returns the error for a table whose columns come from a query."""
    return NotSupported(
        f'the columns of table "{table}" are those of its query',
        hint=f"DROP TABLE {print_name(table)}, and create it with another query",
        place=s.place,
    )


def _after(catalog: Catalog, s: st.AlterTable, table: Relation, resolver: Resolver) -> Relation:
    """Returns the table after the statement; the same if there is nothing to do."""
    schema = table.schema
    match s.action:
        case st.AddColumn(column, if_not_exists):
            if column.name in schema:
                if if_not_exists:
                    return table
                raise _taken(table, column.name, s)
            _check_name(schema, column.name, s)
            if column.primary_key:
                raise SqlError(
                    f'the primary key of table "{table.name}" cannot change',
                    hint="create another table with that key, and INSERT INTO it SELECT … FROM this one",
                    place=s.place,
                )
            if not column.nullable and (column.default is None or isinstance(column.default, exp.Null)):
                raise SqlError(
                    f'column "{column.name}" is NULL in the rows of table "{table.name}", and is declared NOT NULL',
                    hint="give it a DEFAULT, or leave out NOT NULL",
                    place=s.place,
                )
            added = declared_columns((column,), resolver)
            return replace(table, schema=Schema((*schema.columns, *added), schema.key))
        case st.RenameColumn(old, new):
            _find(table, old, s)
            _not_of_ttl(table, old, s)
            if new.lower() != old.lower():
                if new in schema:
                    raise _taken(table, new, s)
                _check_name(schema, new, s)
            columns = tuple(replace(c, name=new) if c.name.lower() == old.lower() else c for c in schema)
            key = tuple(new if k.lower() == old.lower() else k for k in schema.key)
            return replace(table, schema=Schema(columns, key))
        case st.DropColumn(name, if_exists):
            if if_exists and name not in schema:
                return table
            _find(table, name, s)
            _not_of_key(table, name, s, "dropped")
            _not_of_ttl(table, name, s)
            if len(schema) == 1:
                raise SqlError(f'"{name}" is the last column of table "{table.name}"', place=s.place)
            columns = tuple(c for c in schema if c.name.lower() != name.lower())
            return replace(table, schema=Schema(columns, schema.key))
        case st.RetypeColumn(name, dtype):
            known = _find(table, name, s)
            if known.type == dtype:
                return table
            _not_of_key(table, name, s, "given another type")
            if not widens(known.type, dtype):
                raise TypeMismatch(
                    f'column "{known.name}" is {type_name(known.type)}, of which {type_name(dtype)} does not'
                    " have every value",
                    hint="a type can become wider: INT to BIGINT, FLOAT to DOUBLE, DECIMAL to one with more digits",
                    place=s.place,
                )
            columns = tuple(replace(c, type=dtype) if c is known else c for c in schema)
            return replace(table, schema=Schema(columns, schema.key))
        case st.SetDefault(name, value):
            known = _find(table, name, s)
            assert known.type is not None
            declared = st.ColumnDef(known.name, known.type, known.nullable, place=s.place, default=value)
            (made,) = declared_columns((declared,), resolver)
            columns = tuple(replace(c, default=made.default) if c is known else c for c in schema)
            return replace(table, schema=Schema(columns, schema.key))
        case st.RenameTable(name):
            if name.lower() != table.name.lower():
                if name in catalog:
                    there = catalog.find(name)
                    assert there is not None
                    raise SqlError(f'{there.kind} "{there.name}" already exists', place=s.place)
                check_free(name, "table", s.place)
            return replace(table, name=name)
        case st.SetOptions() | st.SwapTable():
            return table


def _check_shadow(catalog: Catalog, table: Relation, name: str, s: st.Statement) -> None:
    beside = shadow_of(table.name)
    if name.lower() != beside.lower() or beside not in catalog:
        raise UnknownName(
            f'"{name}" was not built beside table "{table.name}"',
            hint=f"ALTER TABLE {print_name(table.name)} SWAP WITH {print_name(beside)}"
            if beside in catalog
            else "millpond run or upgrade with --shadow builds what a changed file rebuilds beside the tables",
            place=s.place,
        )


def _find(table: Relation, name: str, s: st.Statement) -> Column:
    column = table.schema.find(name)
    if column is None:
        names = table.schema.names
        raise UnknownName(
            f'column "{name}" is not in table "{table.name}"',
            hint=did_you_mean(name, names, f"its columns: {', '.join(names)}"),
            place=s.place,
        )
    return column


def _taken(table: Relation, name: str, s: st.Statement) -> SqlError:
    return SqlError(f'column "{name}" is already in table "{table.name}"', place=s.place)


def _check_name(schema: Schema, name: str, s: st.Statement) -> None:
    if name.lower() == "_seq" or (name.lower() == ROW and not schema.key):
        raise SqlError(f'a column cannot be named "{name}": it is the order of rows', place=s.place)


def _not_of_key(table: Relation, name: str, s: st.Statement, what: str) -> None:
    if name.lower() in (k.lower() for k in table.schema.key):
        raise SqlError(
            f'column "{name}" is part of the primary key of table "{table.name}": it cannot be {what}',
            hint="create another table with the new key, and INSERT INTO it SELECT … FROM this one",
            place=s.place,
        )


def _not_of_ttl(table: Relation, name: str, s: st.Statement) -> None:
    if table.ttl is not None and (table.ttl.column or "").lower() == name.lower():
        raise SqlError(
            f'column "{name}" is the \'ttl.column\' of table "{table.name}": its rows go by it', place=s.place
        )
