"""Implements a table of a SQL database: reads rows by SELECT, writes by upsert, with all values as parameters."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa

from millpond.changes import ROW
from millpond.connectors.databases.records import converters, quick_reads
from millpond.connectors.databases.sql_database import Session, SqlDatabase
from millpond.connectors.row_times import TIME, micros
from millpond.connectors.table import OutsideTable
from millpond.errors import BadData, Conflict, ConnectionLost, Error, NotSupported, TypeMismatch
from millpond.predicates import All, Any_, Compare, IsNull, OneOf, Predicate
from millpond.records.lookup_keys import fitting_keys
from millpond.tables.base import Get, Has, Snapshot
from millpond.types import Column, type_name

KEPT_ROWS = 100_000
"""Rows up to which the last scan of a table is cached, while the database does not change."""


class SqlTable(OutsideTable):
    """Shares code among tables of SQL databases. ``table`` is the quoted name there; ``stored`` are the columns' names
    there.
    """

    table: str
    stored: dict[str, str]
    made: bool
    """Whether Millpond created the table; otherwise it existed before, and belongs to others."""
    indexed: set[tuple[str, ...]]
    refused: set[tuple[str, ...]]
    """Columns for which the database refused an index: it is not asked again."""
    kept: tuple[int, pa.Table] | None = None
    database: SqlDatabase
    _name: str
    """Its name there, as it was specified."""

    @property
    def mark(self) -> str:
        return self.database.mark

    @property
    def stored_name(self) -> str:
        return self._name

    def quoted(self, names: Sequence[str]) -> list[str]:
        return [quoted(self.stored[self.column(name).name]) for name in names]

    # the table that is there

    where: Literal["database", "file"] = "database"
    """What messages call the place of the rows."""

    @abstractmethod
    def type_there(self, column: Column) -> str:
        """Returns the type of a column in CREATE TABLE."""

    def name_there(self, name: str) -> str:
        """Returns the name that a column has there."""
        return name

    @abstractmethod
    def lacks(self, column: Column) -> Error:
        """Returns the error for a column that the table does not have there; its hint is the columns that are there."""

    def check_columns(
        self,
        there: Iterable[Sequence[Any]],
        holds: Callable[[str, pa.DataType], bool],
        *,
        exactly: str = "",
    ) -> None:
        """Checks that the columns there, with their types, can represent the declared ones, and notes their names."""
        known = {str(name).lower(): (str(name), str(dtype)) for name, dtype in there}
        for column in self.columns:
            wanted = self.name_there(column.name).lower()
            if wanted not in known:
                error = self.lacks(column)
                error.hint = error.hint or f"its columns: {', '.join(name for name, _ in known.values())}"
                raise error
            name, dtype = known[wanted]
            if not holds(dtype, column.type):
                raise TypeMismatch(
                    f'{self.what}: column "{column.name}" is {dtype or "without a type"} in the {self.where},'
                    f" which does not hold {type_name(column.type)}{exactly}",
                    hint=f"it must be {self.type_there(column)} there, or be declared with another type here",
                )
            self.stored[column.name] = name

    def not_numbered(self) -> NotSupported:
        return NotSupported(
            f"{self.what} has no primary key, and its rows in the {self.where} have no numbers",
            hint="declare the PRIMARY KEY that the table has there",
        )

    def not_unique(self) -> NotSupported:
        return NotSupported(
            f"{self.what}: ({', '.join(self.schema.key)}) is not unique in the {self.where}",
            hint="declare the key that the table has there, or give it a UNIQUE index",
        )

    # values

    @abstractmethod
    def encode(self, values: pa.Array, column: Column) -> list[Any]:
        """Converts the values for the driver."""

    @abstractmethod
    def decode(self, values: list[Any], dtype: pa.DataType) -> pa.Array:
        """Converts the values of the driver to the type. Raises pa.ArrowException or ValueError."""

    def selected(self, name: str) -> str:
        """Returns a column in a SELECT, as ``decode`` takes it."""
        return self.quoted([name])[0]

    # the table in the database

    def is_made(self, session: Session) -> bool:
        """Returns whether Millpond has created it."""
        sql = f"SELECT 1 FROM millpond_tables WHERE name = {self.mark}"
        return bool(session.query(sql, (self._name,)))

    def definitions(self) -> list[str]:
        """Returns its columns for CREATE TABLE."""
        return [self.definition(c) for c in self.columns]

    def definition(self, column: Column) -> str:
        """Returns one column for CREATE TABLE."""
        required = set() if self.null_keys else {k.lower() for k in self.identity}
        needed = " NOT NULL" if not column.nullable or column.name.lower() in required else ""
        return f"{self.quoted([column.name])[0]} {self.type_there(column)}{needed}"

    before_drop: tuple[str, ...] = ()
    """Statements that run before DROP TABLE."""

    def remove(self) -> None:
        """Drops the table if Millpond created it; one that existed before stays."""

        def work(writing: Any) -> None:
            session = writing.session
            if self.is_made(session):
                for sql in (*self.before_drop, f"DROP TABLE IF EXISTS {self.table}"):
                    session.execute(sql)
                session.execute(f"DELETE FROM millpond_tables WHERE name = {self.mark}", (self._name,))

        self.database.end_forgotten()
        self.database.write(work)

    @abstractmethod
    def size(self, session: Any) -> int:
        """Returns the bytes that it uses, or all tables of its file."""

    def stats(self) -> dict[str, Any]:
        reading = self.database.read()
        return {
            "rows": len(reading.snapshot(self)),
            "bytes": self.size(reading.session),
            "changed_at": self.changed_at,
            "indexes": [list(columns) for columns in sorted(self.indexed)],
            "where": f"{self.database.name}, table {self._name}",
        }

    # statements

    def source(self, session: Session) -> str:
        """Returns what follows FROM in a query of the session."""
        return self.table

    @property
    def order(self) -> str:
        """Returns what rows are ordered by: what identifies them."""
        return ", ".join(self.quoted(self.identity))

    @abstractmethod
    def with_keys(
        self, columns: Sequence[Column], keys: Sequence[pa.Array], *, nulls: bool
    ) -> Iterator[tuple[str, list[Any]]]:
        """Yields conditions, each with its values, that together are true once for each row with one of the keys."""

    def comparison(self, column: Column, operator: str) -> str | None:
        """Returns ``column operator ?`` with the meaning of SQL; None if the database means something else."""
        return f"{self.quoted([column.name])[0]} {operator} {self.mark}"

    def condition(self, predicate: Predicate) -> tuple[str, list[Any]] | None:
        """Returns the part of a predicate that the database can evaluate, with its values."""
        match predicate:
            case Compare(name, operator, value):
                column = self.column(name)
                sql = self.comparison(column, operator)
                return None if sql is None else (sql, self.encode(pa.array([value], column.type), column))
            case IsNull(name, is_null):
                return f"{self.quoted([name])[0]} IS {'' if is_null else 'NOT '}NULL", []
            case OneOf():
                return self.condition(predicate.spelled_out)
            case All(parts):
                found = [part for p in parts if (part := self.condition(p)) is not None]
                return _joined(" AND ", found) if found else None
            case Any_(parts):
                every = [self.condition(p) for p in parts]
                return _joined(" OR ", [e for e in every if e is not None]) if None not in every else None

    cells: Literal["driver", "basic"] = "driver"
    """How the driver returns values."""

    def quick_reads(self, step: Iterator[int], get: Get, has: Has) -> tuple[Get, Has]:
        if not self.made or self.null_keys or not self.schema.key:
            return get, has
        where = " AND ".join(f"{name} = {self.mark}" for name in self.quoted(self.identity))
        sql = f"SELECT {', '.join(map(self.selected, self.schema.names))} FROM {self.table} WHERE {where}"

        def fetch(key: tuple[Any, ...]) -> Sequence[Any] | None:
            self.check_open()
            return self.database.one(sql, key)

        return quick_reads(self.schema, converters(self.schema, self.cells), fetch, step, get, has)

    # indexes

    def want_index(self, columns: Sequence[str]) -> None:
        """Requests an index for equal values of these columns: a table that Millpond created gets one."""
        wanted = tuple(columns)
        key = [self.column(k).name for k in self.identity]
        begins_key = not self.null_keys and set(key[: len(wanted)]) == set(wanted)
        if begins_key or wanted in self.indexed or wanted in self.refused or not self.made:
            return
        try:
            if self.database.when_free(lambda writing: self._make_index(writing, wanted, wait=False)):
                self.indexed.add(wanted)
        except (Conflict, ConnectionLost):
            pass  # the next lookup tries again
        except Error:
            self.refused.add(wanted)

    def create_index(self, columns: Sequence[str]) -> bool:
        if not self.made:
            return False
        self.database.write(lambda writing: self._make_index(writing, columns))
        self.indexed.add(tuple(columns))
        return True

    def drop_index(self, columns: Sequence[str]) -> bool:
        if not self.made:
            return False

        def work(writing: Any) -> None:
            self.remove_index(writing.session, self.index_name(columns))

        self.database.end_forgotten()
        self.database.write(work)
        self.indexed.discard(tuple(columns))
        return True

    def _make_index(self, writing: Any, columns: Sequence[str], *, wait: bool = True) -> None:
        self.add_index(writing.session, self.index_name(columns), columns, wait=wait)

    def add_index(self, session: Any, name: str, columns: Sequence[str], *, wait: bool) -> None:
        """Creates an index, unless it exists; ``wait`` says whether to wait for those who use the table."""
        names = ", ".join(self.quoted(columns))
        session.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {self.table} ({names})")

    def remove_index(self, session: Any, name: str) -> None:
        """Drops an index, if it exists."""
        session.execute(f"DROP INDEX IF EXISTS {name}")

    def index_name(self, columns: Sequence[str]) -> str:
        return f'"millpond {hashlib.sha256(repr((self.table, tuple(columns))).encode()).hexdigest()[:24]}"'


def _joined(word: str, parts: Sequence[tuple[str, list[Any]]]) -> tuple[str, list[Any]]:
    return f"({word.join(sql for sql, _ in parts)})", [value for _, values in parts for value in values]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class SqlSnapshot(Snapshot):
    """Represents the table in one transaction of its database."""

    remote = True

    def __init__(self, table: SqlTable, session: Session, *, keep: bool = True):
        self.schema = table.schema
        self.version = session.version
        self._table = table
        self._session = session
        self._keep = keep and table.database.exact

    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        table = self._table
        table.check_open()
        wanted = [table.column(name) for name in columns]
        fitting = fitting_keys([c.type for c in wanted], keys, nulls=nulls)
        table.want_index([c.name for c in wanted])
        found: list[tuple[Any, ...]] = []
        if fitting and len(fitting[0]):
            for condition, values in table.with_keys(wanted, fitting, nulls=nulls):
                found += self._select(self._names(None, rows), condition, values, order=True)
        return self._decoded(self._names(None, rows), found)

    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        table = self._table
        table.check_open()
        names = self._names(columns, rows)
        kept = table.kept
        if kept is None or kept[0] != self.version or not self._keep:
            whole = columns is None
            found = self._decoded(names, self._select(names, order=True))
            if whole and self._keep and found.num_rows <= KEPT_ROWS:
                table.kept = (self.version, found)
            return found
        answer = kept[1]
        if ROW in names and ROW not in answer.column_names:
            return self._decoded(names, self._select(names, order=True))
        return answer if answer.column_names == names else answer.select(names)

    def filtered(self, where: Predicate, *, rows: bool = False) -> pa.Table:
        self._table.check_open()
        kept = self._table.kept
        condition = self._table.condition(where)
        if condition is None or (kept is not None and kept[0] == self.version and self._keep):
            return self.scan(rows=rows)
        names = self._names(None, rows)
        return self._decoded(names, self._select(names, *condition, order=True))

    def changed_before(self, time: float, most: int) -> pa.Table:
        table = self._table
        table.check_open()
        names, column = self._names(None, not self.schema.key), table.column(TIME)
        old = f"{table.comparison(column, '<')} ORDER BY {table.quoted([TIME])[0]} LIMIT {most}"
        return self._decoded(names, self._select(names, old, table.encode(micros(time), column)))

    def _names(self, columns: Sequence[str] | None, rows: bool) -> list[str]:
        if rows and self.schema.key:
            raise NotSupported(f"{self._table.what} has a primary key: its rows have no numbers")
        names = list(self.schema.names) if columns is None else [self._table.column(n).name for n in columns]
        return [*names, ROW] if rows else names

    def _select(
        self, names: Sequence[str], where: str = "", values: Sequence[Any] = (), *, order: bool = False
    ) -> list[tuple[Any, ...]]:
        table = self._table
        sql = f"SELECT {', '.join(map(table.selected, names)) or '1'} FROM {table.source(self._session)}"
        if where:
            sql += f" WHERE {where}"
        if order:
            sql += f" ORDER BY {table.order}"
        return self._session.query(sql, values)

    def _decoded(self, names: Sequence[str], found: list[tuple[Any, ...]]) -> pa.Table:
        table = self._table
        columns = [table.column(name) for name in names]
        lists: Sequence[Sequence[Any]] = list(zip(*found, strict=True)) if found else [()] * len(names)
        arrays = []
        for column, values in zip(columns, lists, strict=True):
            try:
                arrays.append(table.decode(list(values), column.type))
            except (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError) as error:
                raise _unreadable(table, column, error) from error
        return pa.table(arrays, schema=pa.schema([pa.field(c.name, c.type) for c in columns]))

    def __len__(self) -> int:
        self._table.check_open()
        return int(self._session.query(f"SELECT count(*) FROM {self._table.source(self._session)}")[0][0])


def _unreadable(table: SqlTable, column: Column, error: Exception) -> Error:
    reason = str(error).splitlines()[0]
    return BadData(
        f'column "{column.name}" of {table.what} holds a value that is no {type_name(column.type)}: {reason}',
        hint="declare the column with the type that the database has",
    )
