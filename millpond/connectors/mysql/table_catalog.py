"""Describes a table that is in a MySQL or MariaDB database already, and refuses one that cannot be used."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millpond.errors import NotSupported

if TYPE_CHECKING:
    from millpond.connectors.databases.server_table import ServerTable
    from millpond.connectors.databases.sql_database import Session

_LONGEST = 64
_IN_FILES = 200
"""Bytes of the name of a table's file, in which a character that is no letter or digit of ASCII has five."""

# The names of information_schema ignore case; the second comparison does not, unless the server ignores it too.
_OF = (
    "table_schema = coalesce(%s, database()) AND table_name = %s"
    " AND IF(@@lower_case_table_names = 0, BINARY table_name = BINARY %s, BINARY lower(table_name) = BINARY lower(%s))"
)


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
    comment: str

    def is_made(self, parts: Sequence[str]) -> bool:
        """Returns whether Millpond has created it. Only the table itself can tell: its creation is a commit."""
        return self.comment == comment_of(parts)


def _named(parts: Sequence[str]) -> tuple[Any, ...]:
    return (parts[0] if len(parts) > 1 else None, *[parts[-1]] * 3)


def described(session: Session, parts: Sequence[str]) -> ThereAlready:
    """Returns what is there under a name, which has the name of a database before it, or not."""
    name = _named(parts)
    columns = session.query(
        "SELECT column_name, column_type, collation_name, is_nullable FROM information_schema.columns"
        f" WHERE {_OF} ORDER BY ordinal_position",
        name,
    )
    table = session.query(f"SELECT engine, table_comment FROM information_schema.tables WHERE {_OF}", name)
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
        str(table[0][0] or "") if table else "",
        [sorted(key or ()) for key in keys.values()],
        str(table[0][1] or "") if table else "",
    )


def comment_of(parts: Sequence[str]) -> str:
    """Returns the comment of a table that Millpond creates. A copy of the table that somebody makes has the name of
    the first one in it: it is not Millpond's.
    """
    return f"created by Millpond as {parts[-1]}"


def fits(name: str) -> bool:
    """Returns whether MySQL takes the name of a table."""
    return is_name(name) and sum(1 if re.match(r"\w", c, re.ASCII) else 5 for c in name) <= _IN_FILES


def is_name(name: str) -> bool:
    """Returns whether MySQL takes it as a name."""
    return len(name) <= _LONGEST and max(name) <= "\uffff" and not name.endswith(" ") and "\0" not in name


def shortened(name: str) -> str:
    """Returns a name for one that MySQL does not take: what can be read of its beginning, and a hash of all of it."""
    start = re.sub(r"[^\w ]", "", name, flags=re.ASCII)[: _LONGEST - 26]
    return f"{start} {hashlib.sha256(name.encode()).hexdigest()[:24]}"


def index_names(session: Session, parts: Sequence[str]) -> set[str]:
    """Returns the names of the indexes of a table."""
    found = session.query(f"SELECT index_name FROM information_schema.statistics WHERE {_OF}", _named(parts))
    return {name for (name,) in found}


def size_of(session: Session, parts: Sequence[str]) -> int:
    """Returns the bytes of a table and its indexes."""
    found = session.query(
        "SELECT data_length + index_length FROM information_schema.tables"
        " WHERE table_schema = coalesce(%s, database()) AND table_name = %s",
        (parts[-2] if len(parts) > 1 else None, parts[-1]),
    )
    return int(found[0][0] or 0) if found else 0


def check_engine(table: ServerTable, there: ThereAlready) -> None:
    """Raises NotSupported if a table has no transactions."""
    if there.engine.lower() != "innodb":
        raise NotSupported(
            f"{table.what}: the table has the engine {there.engine or 'of a view'}, which has no transactions",
            hint="ALTER TABLE … ENGINE = InnoDB",
        )


def check_foreign(table: ServerTable, there: ThereAlready, exact: str) -> None:
    """Raises NotSupported if a table that others have created has no key, or one that compares otherwise than here."""
    if not table.schema.key:
        raise table.not_unique()
    check_engine(table, there)
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
