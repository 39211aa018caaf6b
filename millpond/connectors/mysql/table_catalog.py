"""Describes a table that is in a MySQL or MariaDB database already, and refuses one that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millpond.errors import NotSupported

if TYPE_CHECKING:
    from millpond.connectors.databases.server_table import ServerTable
    from millpond.connectors.databases.sql_database import Session

# The names of information_schema ignore case; the second comparison does not.
_OF = "table_schema = coalesce(%s, database()) AND table_name = %s AND BINARY table_name = BINARY %s"


@dataclass(frozen=True, slots=True)
class ThereColumn:
    name: str
    type: str
    collation: str | None
    nullable: bool


@dataclass(frozen=True, slots=True)
class ThereAlready:
    """Describes a table; without columns there is none. ``keys`` are the columns of each unique index, sorted and in
    lower case."""

    columns: list[ThereColumn]
    engine: str
    keys: list[list[str]]


def _named(parts: Sequence[str]) -> tuple[Any, ...]:
    return (parts[0] if len(parts) > 1 else None, parts[-1], parts[-1])


def described(session: Session, parts: Sequence[str]) -> ThereAlready:
    """Returns what is there under a name, which has the name of a database before it, or not."""
    name = _named(parts)
    columns = session.query(
        "SELECT column_name, column_type, collation_name, is_nullable FROM information_schema.columns"
        f" WHERE {_OF} ORDER BY ordinal_position",
        name,
    )
    engine = session.query(f"SELECT engine FROM information_schema.tables WHERE {_OF}", name)
    indexes = session.query(
        "SELECT index_name, column_name, sub_part FROM information_schema.statistics"
        f" WHERE {_OF} AND non_unique = 0",
        name,
    )
    keys: dict[str, list[str] | None] = {}
    for index, column, part in indexes:
        known = keys.setdefault(index, [])
        if column is None or part is not None:
            keys[index] = None  # of an expression, or of the beginning of a text
        elif known is not None:
            known.append(str(column).lower())
    return ThereAlready(
        [ThereColumn(n, t, c, nullable == "YES") for n, t, c, nullable in columns],
        str(engine[0][0] or "") if engine else "",
        [sorted(key or ()) for key in keys.values()],
    )


def index_names(session: Session, parts: Sequence[str]) -> set[str]:
    """Returns the names of the indexes of a table."""
    found = session.query(f"SELECT index_name FROM information_schema.statistics WHERE {_OF}", _named(parts))
    return {name for (name,) in found}


def check_foreign(table: ServerTable, there: ThereAlready, exact: str) -> None:
    """Raises NotSupported if a table that others have created has no key, or one that compares otherwise than here."""
    if not table.schema.key:
        raise table.not_unique()
    if there.engine.lower() != "innodb":
        raise NotSupported(
            f"{table.what}: the table has the engine {there.engine or 'of a view'}, which has no transactions",
            hint="ALTER TABLE … ENGINE = InnoDB",
        )
    wanted = sorted(table.stored[table.column(k).name].lower() for k in table.schema.key)
    if wanted not in there.keys:
        raise table.not_unique()
    for column in there.columns:
        if column.name.lower() not in wanted:
            continue
        if column.collation not in (None, exact):
            raise NotSupported(
                f'{table.what}: the key "{column.name}" has the collation {column.collation},'
                " for which different texts are equal",
                hint=f"ALTER TABLE … MODIFY {column.name} {column.type} NOT NULL COLLATE {exact}",
            )
        if table.null_keys and column.nullable:
            raise NotSupported(
                f'{table.what}: the key "{column.name}" may be NULL there, which is unique to no row',
                hint="declare it NOT NULL there, or let Millpond create the table",
            )
