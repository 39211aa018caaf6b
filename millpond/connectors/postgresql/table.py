"""Implements ``postgresql``: rows in a PostgreSQL database, in a new or an existing table.

Rows are written by COPY into a temporary table and one upsert from there, so that a batch is a handful of statements
whatever its size. All other values are parameters.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.alterations import TableChange
from millpond.connectors.databases.alter import Altering, altered
from millpond.connectors.databases.nested_values import from_json
from millpond.connectors.databases.row_times import index_times
from millpond.connectors.databases.server_table import SERVER_OPTIONS, ServerTable, escaped
from millpond.connectors.databases.sql_transactions import SqlWriting
from millpond.connectors.databases.texts import to_texts
from millpond.connectors.postgresql.transactions import PostgresDatabase, Session, driver, spot
from millpond.options import Option
from millpond.types import Column

_LONGEST = 63
"""Bytes of a name; PostgreSQL truncates longer ones."""
_FAMILIES: tuple[tuple[str, ...], ...] = (
    ("smallint", "integer", "bigint"),
    ("real", "double precision"),
)
"""Types of which a later one can represent the values of those before it."""


class PostgresTable(ServerTable):
    """Represents a table of a PostgreSQL database. Other programs may read and write it too."""

    schemes = ("postgres",)
    abilities = frozenset({"held", "lasting", "null_keys", "every_key", "every_float", "alter", "times"})
    options = (
        Option("url", "secret", "The database: `postgresql://user:password@host:5432/database`."),
        Option(
            "table",
            "text",
            "Its name there, with or without a schema: `crm.users`. By default its name here.",
        ),
        *SERVER_OPTIONS,
    )

    product = "PostgreSQL"
    example = "postgresql://user@host/database"
    url_schemes = ("postgresql", "postgres")
    longest = (_LONGEST, "bytes")
    database: PostgresDatabase

    @classmethod
    def connected(cls, url: str, replicas: Sequence[str], **more: Any) -> PostgresDatabase:
        driver()
        return PostgresDatabase(url, replicas, **more)

    @classmethod
    def stored_in(cls, values: Mapping[str, Any]) -> str | None:
        return spot(str(values.get("url") or ""))

    # the table in the database

    @classmethod
    def length(cls, name: str) -> int:
        return len(name.encode())

    @classmethod
    def fitting(cls, name: str) -> str:
        """Returns a name that PostgreSQL does not truncate: of a long one the beginning, and a hash of all of it."""
        if len(name.encode()) <= _LONGEST:
            return name
        digest = hashlib.sha256(name.encode()).hexdigest()[:24]
        return f"{name.encode()[: _LONGEST - 25].decode(errors='ignore')} {digest}"

    def create_or_check(self, writing: SqlWriting) -> None:
        session = writing.session
        there = self._there(session)
        self.made = not there or self.is_made(session)
        self.find_columns([str(name) for name, _ in there])
        if there:
            self.check_columns(there, _holds)
        else:
            self._create(session)
        if not self.made:
            self._check_foreign(session)
            self.abilities = self.abilities - {"alter"}

    def check_there(self, session: Session) -> bool:
        """Returns whether the table exists. Raises an error if its columns do not fit."""
        there = self._there(session)
        self.stored = {c.name: self.name_there(c.name) for c in self.columns}
        if there:
            self.check_columns(there, _holds)
        return bool(there)

    def alter(self, change: TableChange) -> PostgresTable:
        return altered(self, change, Altering())

    def columns_there(self, session: Any) -> list[str]:
        return [str(name) for name, _ in self._there(session)]

    def _there(self, session: Session) -> list[tuple[Any, ...]]:
        """Returns the columns that are there, with their types."""
        return session.query(
            "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (self.table.replace("%%", "%"),),
        )

    def _create(self, session: Session) -> None:
        key = ", ".join(self.quoted(self.identity))
        end = f"UNIQUE NULLS NOT DISTINCT ({key})" if self.null_keys else f"PRIMARY KEY ({key})"
        session.execute(f"CREATE TABLE {self.table} ({', '.join(self.definitions())}, {end})")
        index_times(self, session)
        session.execute(
            # It is there if somebody has dropped a table that Millpond created.
            "INSERT INTO millpond_tables VALUES (%s, 0) ON CONFLICT (name) DO NOTHING",
            (self._name,),
        )

    def type_there(self, column: Column) -> str:
        return _sql_type(column.type)

    def _check_foreign(self, session: Session) -> None:
        wanted = sorted(self.stored[self.column(k).name] for k in self.schema.key)
        keys = session.query(
            "SELECT array(SELECT attname::text FROM pg_attribute WHERE attrelid = indrelid"
            " AND attnum = ANY (indkey) ORDER BY 1) FROM pg_index"
            " WHERE indrelid = to_regclass(%s) AND indisunique AND indpred IS NULL AND indexprs IS NULL",
            (self.table.replace("%%", "%"),),
        )
        if not self.schema.key or wanted not in [sorted(row[0]) for row in keys]:
            raise self.not_unique()

    before_drop = ("SET LOCAL lock_timeout = '10s'",)

    def size(self, session: Any) -> int:
        sql, name = "SELECT pg_total_relation_size(to_regclass(%s))", self.table.replace("%%", "%")
        return session.query(sql, (name,))[0][0] or 0

    # statements

    def selected(self, name: str) -> str:
        column = self.quoted([name])[0]
        return f"{column}::text" if pa.types.is_nested(self.column(name).type) else column

    def put(self, session: Any, rows: pa.Table) -> None:
        columns = [self.column(name) for name in rows.column_names]
        names = self.quoted(rows.column_names)
        keys = set(self.quoted(self.identity))
        rest = self.database.updating(self.quoted(self.identity), [n for n in names if n not in keys])
        typed = ", ".join(f"{n} {_sql_type(c.type)}" for n, c in zip(names, columns, strict=True))
        stage = escaped("stage " + hashlib.sha256(f"{self.table} {typed}".encode()).hexdigest()[:24])
        if stage not in session.staged:
            session.execute(f"CREATE TEMP TABLE IF NOT EXISTS {stage} ({typed}) ON COMMIT DELETE ROWS")
        else:
            session.execute(f"DELETE FROM {stage}")
        session.staged.add(stage)
        listed = ", ".join(names)
        # COPY has no parameters, and uses its text as it is.
        plain = f"COPY {stage} ({listed}) FROM STDIN (FORMAT csv)".replace("%%", "%")
        session.copy_in(plain, csv_of([to_texts(rows.column(c.name), c.type) for c in columns]))
        session.execute(f"INSERT INTO {self.table} ({listed}) SELECT {listed} FROM {stage} {rest}")

    def end(self, session: Any, keys: pa.Table) -> None:
        columns = [self.column(name) for name in keys.column_names]
        for condition, values in self.with_keys(columns, keys.columns, nulls=self.null_keys):
            session.execute(f"DELETE FROM {self.table} WHERE {condition}", values)

    def with_keys(
        self, columns: Sequence[Column], keys: Sequence[pa.Array], *, nulls: bool
    ) -> Iterator[tuple[str, list[Any]]]:
        names = self.quoted([c.name for c in columns])
        values = [self.encode(k, c) for k, c in zip(keys, columns, strict=True)]
        given = [f'"millpond {i}"' for i in range(len(names))]
        source = f"unnest({', '.join(['%s::text[]'] * len(names))}) AS wanted ({', '.join(given)})"
        typed = [f"{g}::{_sql_type(c.type)}" for g, c in zip(given, columns, strict=True)]
        if not nulls or not any(None in v for v in values):
            yield f"({', '.join(names)}) IN (SELECT {', '.join(typed)} FROM {source})", values
            return
        same = " AND ".join(f"{n} IS NOT DISTINCT FROM {t}" for n, t in zip(names, typed, strict=True))
        yield f"EXISTS (SELECT 1 FROM {source} WHERE {same})", values

    def comparison(self, column: Column, operator: str) -> str | None:
        name = self.quoted([column.name])[0]
        if pa.types.is_string(column.type):
            return (
                f'{name} COLLATE "C" {operator} %s'
                if operator not in ("=", "!=")
                else f"{name} {operator} %s"
            )
        return f"{name} {operator} %s::{_sql_type(column.type)}"

    # values

    def encode(self, values: pa.Array, column: Column) -> list[Any]:
        return list(to_texts(values, column.type).to_pylist())

    def decode(self, values: list[Any], dtype: pa.DataType) -> pa.Array:
        return from_json(values, dtype) if pa.types.is_nested(dtype) else pa.array(values, dtype)


def csv_of(columns: Sequence[pa.Array]) -> memoryview:
    """Returns columns of texts as COPY takes them: NULL is nothing."""
    from pyarrow import csv

    out = io.BytesIO()
    table = pa.table(list(columns), names=[str(i) for i in range(len(columns))])
    csv.write_csv(table, out, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
    return out.getbuffer()


def _sql_type(dtype: pa.DataType) -> str:
    t = pa.types
    if t.is_decimal(dtype):
        return f"numeric({dtype.precision},{dtype.scale})"
    if t.is_timestamp(dtype):
        return "timestamp with time zone" if dtype.tz else "timestamp without time zone"
    if t.is_nested(dtype):
        return "jsonb"
    names = {
        pa.bool_(): "boolean",
        pa.int8(): "smallint",
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.string(): "text",
        pa.binary(): "bytea",
        pa.date32(): "date",
        pa.duration("us"): "interval",
    }
    return names[dtype]


def _holds(there: str, dtype: pa.DataType) -> bool:
    """Returns whether a column of the database can represent every value of the declared type."""
    wanted, t = _sql_type(dtype), pa.types
    there = there.replace("(6)", "") if t.is_timestamp(dtype) else there
    if there == wanted or (t.is_decimal(dtype) and there == "numeric"):
        return True
    if t.is_string(dtype):
        return there.startswith("character varying")
    if t.is_decimal(dtype) and there.startswith("numeric("):
        precision, scale = (int(n) for n in there[len("numeric(") : -1].split(","))
        return bool(scale >= dtype.scale and precision - scale >= dtype.precision - dtype.scale)
    for family in _FAMILIES:
        if wanted in family:
            return there in family[family.index(wanted) :]
    return False


BACKEND = PostgresTable
