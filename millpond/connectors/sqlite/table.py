"""Implements ``sqlite``: rows in a SQLite file, by default in the state directory.

| SQL                        | in the file                                                      |
|----------------------------|------------------------------------------------------------------|
| BOOLEAN, integers          | INTEGER                                                          |
| FLOAT, DOUBLE              | REAL; NaN as the text `NaN`, which SQLite sorts after numbers    |
| DECIMAL                    | TEXT with all its digits                                         |
| DATE, TIMESTAMP            | TEXT, ISO 8601, in UTC, always with microseconds                 |
| INTERVAL DAY TO SECOND     | INTEGER, microseconds                                            |
| ARRAY, MAP, STRUCT         | TEXT, JSON                                                       |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from millpond.alterations import TableChange
from millpond.connectors.databases.alter import altered
from millpond.connectors.databases.nested_values import from_json, to_json
from millpond.connectors.databases.row_times import find_times, index_times
from millpond.connectors.databases.sql_database import Session
from millpond.connectors.databases.sql_table import SqlTable, quoted
from millpond.connectors.databases.sql_transactions import SqlWriting
from millpond.connectors.sqlite.alter import SqliteAltering
from millpond.connectors.sqlite.transactions import SqliteDatabase
from millpond.connectors.table import shared
from millpond.errors import Error, InvalidOption, UnknownName
from millpond.options import Option
from millpond.tables.ttl import goes_by_changes
from millpond.types import TIMESTAMP_NTZ, Column, Schema

_VALUES = 30_000
"""Parameters of one statement; SQLite accepts 32,766."""


class SqliteTable(SqlTable):
    """Represents a table of a SQLite file. Other programs may read and write the file too."""

    aliases = ("jdbc",)
    schemes = ("jdbc",)
    inside = True
    abilities = frozenset(
        {"held", "lasting", "null_keys", "every_key", "every_float", "widen", "alter", "times"}
    )
    options = (
        Option("path", "text", "The file. By default `tables.db` in the state directory."),
        Option(
            "url",
            "text",
            "The file as a URL: `sqlite:///x.db`, `sqlite:////data/x.db`, `jdbc:sqlite:/data/x.db`.",
        ),
        Option("table", "text", "The table's name in the file. By default its name here."),
        Option(
            "sync",
            "bool",
            "true: a commit is on disk when it returns. false: a power failure may lose the last commits.",
            default=True,
        ),
    )

    cells = "basic"
    where = "file"
    database: SqliteDatabase

    @classmethod
    def open(
        cls,
        name: str,
        schema: Schema,
        values: Mapping[str, Any],
        *,
        null_keys: bool = False,
        home: Path | None = None,
    ) -> Self:
        path = _path(values)
        if path is None:
            if home is None:
                raise InvalidOption(f'table "{name}" needs a file', hint="WITH ('path' = 'tables.db')")
            path = home / "tables.db"
        path = path.absolute()
        sync = bool(values.get("sync", True))
        database = shared(f"sqlite:{path}", lambda: SqliteDatabase(path, sync=sync))
        table = cls(name, schema, database, null_keys=null_keys)
        table.times = goes_by_changes(values)
        with table.closed_on_error():
            table._set_up(str(values.get("table") or name))
        return table

    @classmethod
    def stored_in(cls, values: Mapping[str, Any]) -> str | None:
        path = _path(values)
        return "sqlite" if path is None else f"sqlite:{path.absolute()}"

    # the table in the file

    def _set_up(self, stored_name: str) -> None:
        self._name = stored_name
        self.table = quoted(stored_name)
        self.indexed, self.refused = set(), set()
        reading = self.database.read()
        session = reading.session
        there = session.query(f"PRAGMA table_info({self.table})")
        self.made = not there or self.is_made(session)
        find_times(self, [str(row[1]) for row in there])
        self.stored = {c.name: c.name for c in self.columns}
        if not there:
            self.database.write(self._create)
        elif self.made:
            self._check_columns(there)
        else:
            self._check_foreign(session, there)
            self.abilities = self.abilities - {"widen", "alter"}  # it belongs to others

    def alter(self, change: TableChange) -> SqliteTable:
        return altered(self, change, SqliteAltering())

    def _create(self, writing: SqlWriting) -> None:
        key = ", ".join(self.quoted(self.identity))
        end = ")" if self.null_keys else f", PRIMARY KEY ({key})) WITHOUT ROWID"
        writing.session.execute(f"CREATE TABLE {self.table} ({', '.join(self.definitions())}{end}")
        if self.null_keys:
            index = quoted(f"{self._name} key")
            writing.session.execute(f"CREATE UNIQUE INDEX {index} ON {self.table} ({self._conflict()})")
        index_times(self, writing.session)
        writing.session.execute("INSERT INTO millpond_tables VALUES (?, 0)", (self._name,))

    def _check_columns(self, there: list[tuple[Any, ...]]) -> None:
        self.check_columns([(row[1], row[2]) for row in there], _holds, exactly=" exactly")

    def type_there(self, column: Column) -> str:
        return _affinity(column.type)

    def lacks(self, column: Column) -> Error:
        return UnknownName(
            f'{self.what}: {self.database.name} has a table "{self._name}" without a column "{column.name}"'
        )

    def _check_foreign(self, session: Session, there: list[tuple[Any, ...]]) -> None:
        if not self.schema.key:
            raise self.not_numbered()
        self._check_columns(there)
        wanted = {self.stored[self.column(k).name].lower() for k in self.schema.key}
        keys = [{str(row[1]).lower() for row in there if row[5]}]
        for index in session.query(f"PRAGMA index_list({self.table})"):
            if index[2]:
                rows = session.query(f"PRAGMA index_info({quoted(index[1])})")
                keys.append({str(row[2]).lower() for row in rows})
        if wanted not in keys:
            raise self.not_unique()

    def size(self, session: Any) -> int:
        pages, size = (session.query(f"PRAGMA {what}")[0][0] for what in ("page_count", "page_size"))
        return int(pages * size)

    # statements

    def _conflict(self) -> str:
        names = self.quoted(self.identity)
        return (
            ", ".join(f"({n} IS NULL), ifnull({n}, 0)" for n in names) if self.null_keys else ", ".join(names)
        )

    def put(self, session: Any, rows: pa.Table) -> None:
        columns = [self.column(name) for name in rows.column_names]
        names = self.quoted(rows.column_names)
        keys = set(self.quoted(self.identity))
        rest = self.database.updating([self._conflict()], [n for n in names if n not in keys])
        session.many(
            f"INSERT INTO {self.table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) {rest}",
            zip(*self._encoded(rows.columns, columns), strict=True),
        )

    def end(self, session: Any, keys: pa.Table) -> None:
        columns = [self.column(name) for name in keys.column_names]
        equal = "IS" if self.null_keys else "="
        where = " AND ".join(f"{n} {equal} ?" for n in self.quoted(keys.column_names))
        session.many(
            f"DELETE FROM {self.table} WHERE {where}", zip(*self._encoded(keys.columns, columns), strict=True)
        )

    def take_numbers(self, session: Any, count: int, highest: int) -> int:
        known = session.query("SELECT next_row FROM millpond_tables WHERE name = ?", (self._name,))[0][0]
        first = max(int(known), highest + 1)
        session.execute("UPDATE millpond_tables SET next_row = ? WHERE name = ?", (first + count, self._name))
        return first

    def with_keys(
        self, columns: Sequence[Column], keys: Sequence[pa.Array], *, nulls: bool
    ) -> Iterator[tuple[str, list[Any]]]:
        names = self.quoted([c.name for c in columns])
        rows = list(zip(*self._encoded(keys, columns), strict=True))
        missing = [row for row in rows if None in row]
        rows = [row for row in rows if None not in row] if missing else rows
        chunk = _VALUES // len(names)
        for at in range(0, len(rows), chunk):
            part = rows[at : at + chunk]
            # Few texts of statements, whatever the number of keys: SQLite caches prepared statements.
            part += [part[-1]] * (
                (1 << (len(part) - 1).bit_length()) - len(part) if len(part) < chunk // 2 else 0
            )
            flat = [value for row in part for value in row]
            if len(names) == 1:
                yield f"{names[0]} IN ({', '.join('?' * len(flat))})", flat
            else:
                one = f"({', '.join('?' * len(names))})"
                yield f"({', '.join(names)}) IN (VALUES {', '.join([one] * len(part))})", flat
        for row in missing:
            yield " AND ".join(f"{name} IS ?" for name in names), list(row)

    def comparison(self, column: Column, operator: str) -> str | None:
        t, name = pa.types, self.quoted([column.name])[0]
        if operator not in ("=", "!="):
            if t.is_decimal(column.type):
                return f"{name} COLLATE millpond_decimal {operator} ?"
            if not self.made and (t.is_date(column.type) or t.is_timestamp(column.type)):
                return None  # others may write times in another format, which sorts differently
        elif not self.made and not (t.is_integer(column.type) or t.is_string(column.type)):
            return None
        return f"{name} {operator} ?"

    # values

    def _encoded(self, arrays: Sequence[Any], columns: Sequence[Column]) -> list[list[Any]]:
        return [self.encode(a, c) for a, c in zip(arrays, columns, strict=True)]

    def encode(self, values: pa.Array | pa.ChunkedArray, column: Column) -> list[Any]:
        t, dtype = pa.types, column.type
        if isinstance(values, pa.ChunkedArray):
            return [v for chunk in values.chunks for v in self.encode(chunk, column)]
        if t.is_nested(dtype):
            return to_json(values)
        if t.is_boolean(dtype):
            values = values.cast(pa.int8())
        elif t.is_floating(dtype):
            # -0.0 becomes 0.0: they are equal in SQL, and so must be a key.
            found = pc.add(values, pa.scalar(0.0, dtype)).to_pylist()
            return ["NaN" if v is not None and v != v else v for v in found]
        elif t.is_decimal(dtype) or t.is_date(dtype):
            values = values.cast(pa.string())
        elif t.is_timestamp(dtype):
            values = values.view(pa.int64()).view(TIMESTAMP_NTZ).cast(pa.string())
        elif t.is_duration(dtype):
            values = values.view(pa.int64())
        return list(values.to_pylist())

    def decode(self, values: list[Any], dtype: pa.DataType) -> pa.Array:
        t = pa.types
        if t.is_nested(dtype):
            return from_json(values, dtype)
        if t.is_boolean(dtype):
            return pa.array(values, pa.int8()).cast(dtype)
        if t.is_floating(dtype):
            return pa.array([float(v) if isinstance(v, str) else v for v in values], pa.float64()).cast(dtype)
        if t.is_decimal(dtype):
            texts = [str(v) if isinstance(v, int) else v for v in values]
            return pa.array(texts, pa.string()).cast(dtype)
        if t.is_date(dtype):
            return pa.array(values, pa.string()).cast(dtype)
        if t.is_timestamp(dtype):
            return pa.array(values, pa.string()).cast(TIMESTAMP_NTZ).view(pa.int64()).view(dtype)
        if t.is_duration(dtype):
            return pa.array(values, pa.int64()).view(dtype)
        return pa.array(values, dtype)


def _path(values: Mapping[str, Any]) -> Path | None:
    path, url = values.get("path"), values.get("url")
    if path and url:
        raise InvalidOption('"path" and "url" both name the file', hint="give one of them")
    if url:
        plain = str(url).removeprefix("jdbc:")
        if not plain.startswith("sqlite:"):
            raise InvalidOption(f'"{url}" is no URL of a SQLite file', hint="sqlite:///data/x.db")
        path = plain.removeprefix("sqlite:").removeprefix("///")
    return Path(str(path)) if path else None


def _affinity(dtype: pa.DataType) -> str:
    t = pa.types
    if t.is_boolean(dtype) or t.is_integer(dtype) or t.is_duration(dtype):
        return "INTEGER"
    if t.is_floating(dtype):
        return "REAL"
    return "BLOB" if t.is_binary(dtype) else "TEXT"


def _holds(declared: str, dtype: pa.DataType) -> bool:
    """Returns whether a column that was declared so returns what is stored, by SQLite's rules of affinity."""
    name = declared.upper()
    if "INT" in name:
        found = "INTEGER"
    elif any(word in name for word in ("CHAR", "CLOB", "TEXT")):
        found = "TEXT"
    elif not name or "BLOB" in name:
        found = "BLOB"
    elif any(word in name for word in ("REAL", "FLOA", "DOUB")):
        found = "REAL"
    else:
        found = "NUMERIC"
    wanted, t = _affinity(dtype), pa.types
    if found == "NUMERIC":
        return wanted == "INTEGER" or t.is_date(dtype) or t.is_timestamp(dtype)
    return found in ("BLOB", wanted)


BACKEND = SqliteTable
