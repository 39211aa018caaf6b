"""Implements ``mysql``: rows in a MySQL or MariaDB database, in a new or an existing table.

Rows are written by INSERT … ON DUPLICATE KEY UPDATE, many in a statement. All values are parameters. A key that may be
NULL, or is nested, cannot be a key of InnoDB: its rows are identified by a hash, in the column ``millpond_key``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from millpond.alterations import TableChange
from millpond.changes import Changes
from millpond.connectors.databases.alter import altered
from millpond.connectors.databases.row_times import index_times
from millpond.connectors.databases.server_table import SERVER_OPTIONS, ServerTable
from millpond.connectors.databases.sql_database import Session
from millpond.connectors.databases.sql_transactions import SqlWriting
from millpond.connectors.mysql.alter import MysqlAltering
from millpond.connectors.mysql.careful_upsert import put_one_by_one
from millpond.connectors.mysql.table_catalog import (
    ThereAlready,
    check_foreign,
    comment_of,
    described,
    fits,
    index_names,
    is_name,
    shortened,
    size_of,
)
from millpond.connectors.mysql.table_types import (
    bytes_of,
    check_storable,
    decoded,
    digests_of,
    encoded,
    holds,
    is_text,
    key_length,
    parameter,
    slices,
    sql_type,
)
from millpond.errors import NotSupported
from millpond.options import Option
from millpond.packages import needed
from millpond.predicates import Compare, Predicate
from millpond.types import Column, whole

if TYPE_CHECKING:
    from millpond.connectors.mysql.table_database import MysqlTables

_KEYS = 900
"""Keys in one statement: of more MariaDB would make a table that has no index."""
_STATEMENT = 1 << 20
"""Bytes of a statement with many rows."""
_PREFIX = 191
"""Characters of a text in an index that is no key."""
_HASH = "millpond_key"


class MysqlTable(ServerTable):
    """Represents a table of a MySQL or MariaDB database. Other programs may read it, and write it too unless its rows
    are identified by a hash.
    """

    schemes = ("mariadb",)
    abilities = frozenset({"held", "lasting", "null_keys", "every_key", "alter", "times"})
    options = (
        Option("url", "secret", "The database: `mysql://user:password@host:3306/database`."),
        Option(
            "table",
            "text",
            "Its name there, with or without a database: `crm.users`. By default its name here.",
        ),
        *SERVER_OPTIONS,
    )

    product = "MySQL"
    example = "mysql://user@host/database"
    url_schemes = ("mysql", "mariadb")
    longest = (64, "characters")
    cells = "basic"
    database: MysqlTables

    @classmethod
    def connected(cls, url: str, replicas: Sequence[str], **more: Any) -> MysqlTables:
        needed("pymysql", "tables in MySQL", "mysql")
        from millpond.connectors.mysql.table_database import MysqlTables

        return MysqlTables(url, replicas, **more)

    @classmethod
    def stored_in(cls, values: Mapping[str, Any]) -> str | None:
        parts = urlsplit(str(values.get("url") or ""))
        return f"mysql://{parts.hostname or 'localhost'}:{parts.port or 3306}{parts.path or '/'}"

    # the table in the database

    @classmethod
    def length(cls, name: str) -> int:
        return len(name)

    @classmethod
    def fitting(cls, name: str) -> str:
        return name if fits(name) else shortened(name)

    def spelled(self, parts: Sequence[str]) -> Sequence[str]:
        names = [part.lower() for part in parts] if self.database.folds else list(parts)
        return names[1:] if len(names) > 1 and names[0] == self.database.home else names

    def name_there(self, name: str) -> str:
        return name if is_name(name) else shortened(name)

    def create_or_check(self, writing: SqlWriting) -> None:
        session = writing.session
        there = described(session, self.parts)
        self.made = not there.columns or there.is_made(self.parts)
        self.find_columns([c.name for c in there.columns])
        nested = any(pa.types.is_nested(c.type) for c in self._key)
        self._hashed = self.made and bool(self.schema.key) and (self.null_keys or nested)
        self._loose: set[str] = set()
        self._careful = len(there.keys) > 1 and not self._hashed
        self._young: dict[str, int] = {}
        if self._hashed and _HASH in (name.lower() for name in self.stored.values()):
            raise NotSupported(
                f'{self.what}: "{_HASH}" is the column that identifies its rows',
                hint="give yours another name",
            )
        if not there.columns:
            self._register(session, "0")
            key = _HASH if self._hashed else ", ".join(self.quoted(self.identity))
            self.create(session, f", PRIMARY KEY ({key})")
            index_times(self, session)
            return
        self.check_columns([(c.name, c.type) for c in there.columns], holds)
        if self.made:
            self._check_made(there)
            self._register(session, f"coalesce(max({self.order}) + 1, 0) FROM {self.table}")
            return
        check_foreign(self, there, self.database.collation)
        self.abilities = self.abilities - {"alter"}
        texts = {c.name.lower(): c.collation for c in there.columns if c.collation is not None}
        self._loose = {
            name for name, at in self.stored.items() if texts.get(at.lower(), self._exact) != self._exact
        }

    def is_made(self, session: Any) -> bool:
        return described(session, self.parts).is_made(self.parts)

    def _register(self, session: Any, first: str) -> None:
        """Stores the name with the first number of a row, unless it is stored."""
        if not super().is_made(session):
            number = "0" if self.schema.key else first
            session.execute(f"INSERT IGNORE INTO millpond_tables SELECT %s, {number}", (self._name,))

    @property
    def _exact(self) -> str:
        return self.database.collation

    @property
    def _key(self) -> list[Column]:
        return [self.column(name) for name in self.identity]

    def key_length(self, column: Column) -> int | None:
        """Returns the length of a text in the key; None for other columns, and of a table that others have created."""
        if not self.made or self._hashed or column.name not in [c.name for c in self._key]:
            return None
        return key_length(column.type, [c.type for c in self._key]) if is_text(column.type) else None

    def type_there(self, column: Column) -> str:
        return sql_type(column.type, self.key_length(column))

    def create(self, session: Any, rest: str) -> None:
        """Creates the table; ``rest`` follows its columns."""
        parts = self.definitions()
        if self._hashed:
            parts.append(f"{_HASH} BINARY(32) NOT NULL")
        nested = [c.name for c in self.columns if pa.types.is_nested(c.type)]
        checks = [f"CHECK (json_valid({name}))" for name in self.quoted(nested)]
        session.execute(
            f"CREATE TABLE {self.table} ({', '.join([*parts, *checks])}{rest})"
            f" ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE {self._exact}"
            " COMMENT = %s",
            (comment_of(self.parts),),
        )

    def alter(self, change: TableChange) -> MysqlTable:
        return altered(self, change, MysqlAltering())

    def _check_made(self, there: ThereAlready) -> None:
        """Checks that a table of Millpond has the key that is declared now."""
        wanted = [_HASH] if self._hashed else [self.stored[c.name].lower() for c in self._key]
        if sorted(wanted) not in there.keys:
            raise self.not_unique()

    def size(self, session: Any) -> int:
        return size_of(session, self.parts)

    # indexes

    def want_index(self, columns: Sequence[str]) -> None:
        if not any(pa.types.is_nested(self.column(name).type) for name in columns):
            super().want_index(columns)

    def add_index(self, session: Any, name: str, columns: Sequence[str], *, wait: bool) -> None:
        if name.strip('"') in index_names(session, self.parts):
            return
        texts = sum(is_text(self.column(c).type) for c in columns)
        prefix = min(_PREFIX, key_length(pa.string(), [pa.string()] * (texts + 1)))
        key = {c.name for c in self._key} if self.made and not self._hashed else set()
        parts = [
            f"{quoted}({prefix})" if is_text(c.type) and c.name not in key else quoted
            for quoted, c in zip(self.quoted(columns), map(self.column, columns), strict=True)
        ]
        with session.waiting(10 if wait else self.database.no_wait):
            session.execute(f"CREATE INDEX {name} ON {self.table} ({', '.join(parts)})")
        self._young[name] = self.database.sequence_number()

    def remove_index(self, session: Any, name: str) -> None:
        if name.strip('"') in index_names(session, self.parts):
            session.execute(f"DROP INDEX {name} ON {self.table}")
        self._young.pop(name, None)

    def source(self, session: Session) -> str:
        """Returns the table without the indexes that are younger than the snapshot, which cannot use them."""
        began = getattr(session, "began", 0)
        young = [name for name, made in list(self._young.items()) if made > began]
        return f"{self.table} IGNORE INDEX ({', '.join(young)})" if young else self.table

    # statements

    @property
    def order(self) -> str:
        return _HASH if self._hashed else super().order

    def check(self, changes: Changes) -> Changes:
        found = super().check(changes)
        check_storable(found, [(c.name, self.key_length(c)) for c in self.schema.columns], self.what)
        return found

    def put(self, session: Any, rows: pa.Table) -> None:
        if self._careful:
            put_one_by_one(self, session, rows, self.insert)
            return
        keys = set(self.quoted(self.identity))
        names = self.quoted(rows.column_names)
        rest = self.database.updating(
            [_HASH] if self._hashed else self.quoted(self.identity), [n for n in names if n not in keys]
        )
        self.insert(session, rows, rest)

    def insert(self, session: Any, rows: pa.Table, rest: str = "") -> None:
        """Inserts rows, many in a statement, each of which ends with ``rest``."""
        columns = [self.column(name) for name in rows.column_names]
        names = self.quoted(rows.column_names)
        cells = [encoded(v, c.type) for v, c in zip(rows.columns, columns, strict=True)]
        size = sum((bytes_of(v, c.type) for v, c in zip(cells, columns, strict=True)), np.zeros(len(rows)))
        if self._hashed:
            names = [*names, _HASH]
            cells.append(digests_of([whole(rows.column(c.name)) for c in self._key], self._key))
        one = f"({', '.join(['%s'] * len(names))})"
        start = f"INSERT INTO {self.table} ({', '.join(names)}) VALUES "
        data = list(zip(*cells, strict=True))
        for first, last in slices(size, min(_STATEMENT, self.database.packet // 2)):
            marks = ", ".join([one] * (last - first))
            session.execute(f"{start}{marks} {rest}", [value for row in data[first:last] for value in row])

    def end(self, session: Any, keys: pa.Table) -> None:
        columns = [self.column(name) for name in keys.column_names]
        arrays = [whole(column) for column in keys.columns]
        for condition, values in self.with_keys(columns, arrays, nulls=self.null_keys):
            session.execute(f"DELETE FROM {self.table} WHERE {condition}", values)

    def with_keys(
        self, columns: Sequence[Column], keys: Sequence[pa.Array], *, nulls: bool
    ) -> Iterator[tuple[str, list[Any]]]:
        if self._hashed and {c.name for c in columns} == {c.name for c in self._key}:
            given = {c.name: array for c, array in zip(columns, keys, strict=True)}
            digests = digests_of([given[c.name] for c in self._key], self._key)
            for at in range(0, len(digests), _KEYS):
                part = digests[at : at + _KEYS]
                yield f"{_HASH} IN ({', '.join(['%s'] * len(part))})", part
            return
        rows = list(zip(*(self.encode(k, c) for k, c in zip(keys, columns, strict=True)), strict=True))
        if any(pa.types.is_floating(c.type) for c in columns):
            rows = [row for row in rows if all(v is None or v - v == 0 for v in row if isinstance(v, float))]
        missing = [row for row in rows if None in row]
        rows = [row for row in rows if None not in row] if missing else rows
        names = self.quoted([c.name for c in columns])
        marks = [parameter(c) for c in columns]
        size = np.zeros(len(rows))
        for cells, column in zip(zip(*rows, strict=True), columns, strict=False):
            size += bytes_of(list(cells), column.type)
        exact_too = not self._loose.isdisjoint(c.name for c in columns)
        most = min(_STATEMENT, self.database.packet // 2) // (2 if exact_too else 1)
        for first, last in slices(size, most, _KEYS):
            part = rows[first:last]
            flat = [value for row in part for value in row]
            one = marks[0] if len(names) == 1 else f"({', '.join(marks)})"
            listed = ", ".join([one] * len(part))
            condition = f"({', '.join(names)}) IN ({listed})"
            if not exact_too:
                yield condition, flat
            else:  # the index of the column finds candidates
                exact = ", ".join(map(self._exactly, columns))
                yield f"{condition} AND ({exact}) IN ({listed})", flat + flat
        for row in missing if nulls else ():
            same = [f"{self._exactly(c)} <=> {m}" for c, m in zip(columns, marks, strict=True)]
            yield " AND ".join(same), list(row)

    def _exactly(self, column: Column) -> str:
        """Returns a column that is compared byte by byte."""
        name = self.quoted([column.name])[0]
        return f"CONVERT({name} USING utf8mb4) COLLATE {self._exact}" if column.name in self._loose else name

    def comparison(self, column: Column, operator: str) -> str | None:
        if pa.types.is_nested(column.type):
            return None
        # With = an index of another collation finds candidates, which are more than the rows that match.
        name = self.quoted([column.name])[0] if operator == "=" else self._exactly(column)
        return f"{name} {operator} {parameter(column)}"

    def condition(self, predicate: Predicate) -> tuple[str, list[Any]] | None:
        match predicate:
            case Compare(_, _, float(value)) if value - value != 0:
                return None  # NaN and infinities are no values there
            case _:
                return super().condition(predicate)

    # values

    def selected(self, name: str) -> str:
        column = self.quoted([name])[0]
        # A FLOAT is sent with six digits only.
        return f"{column} + 0e0" if self.column(name).type == pa.float32() else column

    def encode(self, values: pa.Array, column: Column) -> list[Any]:
        return encoded(values, column.type)

    def decode(self, values: list[Any], dtype: pa.DataType) -> pa.Array:
        return decoded(values, dtype)


BACKEND = MysqlTable
