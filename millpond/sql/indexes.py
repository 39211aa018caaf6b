"""Checks CREATE INDEX and DROP INDEX against the catalog."""

from __future__ import annotations

from millpond.errors import AlreadyExists, SqlError, UnknownName, did_you_mean
from millpond.sql import statements as st
from millpond.sql.catalog import Catalog, Index
from millpond.sql.checked import Checked, CheckedNothing
from millpond.sql.checked_commands import CheckedDropIndex, CheckedIndex
from millpond.sql.printer import print_name
from millpond.sql.reserved_names import is_shadow, without_shadow


def check_create_index(catalog: Catalog, s: st.CreateIndex) -> Checked | None:
    known = catalog.index(s.name)
    if known is not None:
        if s.if_not_exists:
            return CheckedNothing(s)
        raise AlreadyExists(
            f'index "{known.name}" already exists, on table "{known.table}"',
            hint=f"DROP INDEX {print_name(known.name)} first, or CREATE INDEX IF NOT EXISTS",
        )
    relation = catalog.find(s.table)
    if relation is None or relation.kind != "table":
        raise catalog.unknown(s.table, "table")
    if is_shadow(relation.name):
        raise SqlError(
            f'"{relation.name}" has the indexes of "{without_shadow(relation.name)}" when it replaces it',
            hint=f"create the index on {print_name(without_shadow(relation.name))}",
        )
    if relation.is_open:
        return None
    columns: list[str] = []
    for name in s.columns:
        column = relation.schema.find(name)
        if column is None:
            names = relation.schema.names
            raise UnknownName(
                f'column "{name}" is not in table "{relation.name}"',
                hint=did_you_mean(name, names, f"its columns: {', '.join(names)}"),
            )
        if column.name in columns:
            raise SqlError(f'index "{s.name}" names column "{column.name}" twice')
        columns.append(column.name)
    index = Index(s.name, relation.name, tuple(columns))
    catalog.add_index(index)
    return CheckedIndex(s, index)


def check_drop_index(catalog: Catalog, s: st.Drop) -> Checked | None:
    index = catalog.index(s.name)
    if index is None:
        if s.if_exists:
            return CheckedNothing(s)
        known = [i.name for i in catalog.indexes()]
        raise UnknownName(f'index "{s.name}" is not known', hint=did_you_mean(s.name, known))
    catalog.remove_index(s.name)
    return CheckedDropIndex(s, index)
