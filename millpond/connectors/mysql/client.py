"""Reads a MySQL or MariaDB database: its types, rows as it sends them, snapshots on several connections, its log."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa
import pymysql
import sqlalchemy as sa
from sqlalchemy import exc

from millpond.connectors.cdc.database import HostedDatabase
from millpond.connectors.cdc.log import Log
from millpond.connectors.databases.sqltext import named
from millpond.connectors.databases.uri import DatabaseAddress
from millpond.connectors.mysql.cdc import BinLog
from millpond.connectors.mysql.internals import close_now, fields_of
from millpond.connectors.mysql.login import Login
from millpond.connectors.mysql.snapshot import SharedSnapshot, driver_of, set_up
from millpond.connectors.mysql.text import streamed
from millpond.connectors.mysql.types import of_field
from millpond.errors import Error, InvalidOption, NotSupported, SourceChanged
from millpond.types import Column, Schema

_KEY = (
    "SELECT column_name FROM information_schema.key_column_usage WHERE constraint_name = 'PRIMARY'"
    " AND table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
_ESTIMATE = "SELECT table_rows FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


class MysqlDatabase(HostedDatabase):
    """Represents the database. Reads in transactions that change nothing."""

    dialect: ClassVar[str] = "mysql"
    drivername: ClassVar[str] = "mysql+pymysql"
    login: Login

    def __init__(self, uri: str, address: DatabaseAddress, values: Mapping[str, Any]):
        super().__init__(uri, address, values)
        self.login = Login(address, values)
        self._snapshots: dict[str, SharedSnapshot] = {}
        self._changing = threading.Lock()

    @property
    def line(self) -> str:
        """Returns the server: its databases have one log, and a transaction may change several."""
        return f"mysql://{self.login.host}:{self.login.port}"

    # connections

    def _connect(self) -> Any:
        return self.login.open()

    @contextmanager
    def connected(self, snapshot: str | None = None) -> Iterator[sa.Connection]:
        """Provides one of the connections of the snapshot, if one is named: no other can see it."""
        if snapshot is None:
            with super().connected() as connection:
                yield connection
            return
        found = self._snapshots.get(snapshot)
        if found is None:
            raise SourceChanged(f"{self.name}: the moment at which rows were to be read is over")
        with self.explaining(), found.lent() as connection:
            yield connection

    def prepared(self, connection: sa.Connection) -> None:
        set_up(driver_of(connection), self.values)
        with driver_of(connection).cursor() as cursor:
            cursor.execute("START TRANSACTION READ ONLY")

    def explained(self, error: exc.SQLAlchemyError) -> Error:
        origin = getattr(error, "orig", None)
        if isinstance(origin, pymysql.Error):
            return self.login.explained(origin, self._quoted)
        return super().explained(error)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        try:
            with super().explaining():
                yield
        except pymysql.Error as error:
            raise self.login.explained(error, self._quoted) from None

    def close(self) -> None:
        with self._changing:
            snapshots, self._snapshots = self._snapshots, {}
        for snapshot in snapshots.values():
            snapshot.end()
        super().close()

    # snapshots

    def hold(self) -> SharedSnapshot:
        """Holds a snapshot with as many connections as there are readers, until it is released."""
        with self.explaining():
            snapshot = SharedSnapshot(self.engine, self.login, self.values)
        with self._changing:
            self._snapshots[snapshot.name] = snapshot
        return snapshot

    def let_go(self, snapshot: SharedSnapshot) -> None:
        with self._changing:
            self._snapshots.pop(snapshot.name, None)
        snapshot.end()

    # columns

    @property
    def home(self) -> str | None:
        """Returns the database of the table."""
        return self.rows.schema or self.login.database

    @property
    def _quoted(self) -> str | None:
        parts = [p for p in (self.home, self.rows.table) if p is not None]
        return ".".join(f"`{p.replace('`', '``')}`" for p in parts) if self.rows.table else None

    def discovered(self) -> Schema:
        """Returns the current columns and key of the table."""
        with self.connected() as connection:
            return self.discover(connection)

    def discover(self, connection: sa.Connection) -> Schema:
        if self.rows.table is None:
            return self.discover_query(connection)
        if self.home is None:
            raise InvalidOption("no database is named", hint="mysql://host:port/DATABASE?table=…")
        try:
            found = self._described(connection, self.rows.relation())
        except pymysql.err.ProgrammingError as error:
            if error.args[0] != 1146:
                raise
            self.no_table([row[0] for row in self._ask(connection, _TABLES, self.home)])
        key = [row[0] for row in self._ask(connection, _KEY, self.home, self.rows.table)]
        seen = {c.name for c in found}  # an invisible one is not a key here
        return Schema(found, tuple(key) if seen.issuperset(key) else ())

    def discover_query(self, connection: sa.Connection) -> Schema:
        return Schema(self._described(connection, self.rows.relation(poll=self.rows.query is None)))

    def _described(self, connection: sa.Connection, relation: sa.FromClause) -> tuple[Column, ...]:
        """Returns the columns of what follows FROM, as a result has them."""
        driver = driver_of(connection)
        statement = sa.select(sa.text("*")).select_from(relation).limit(0)
        with driver.cursor() as cursor:
            cursor.execute(*self._compiled(statement))
            fields = fields_of(cursor)
        found = tuple(Column(f.name, of_field(f)) for f in fields)
        seen: set[str] = set()
        for column in found:
            if column.name.lower() in seen:
                raise NotSupported(
                    f'{self.rows.what} has two columns "{column.name}"',
                    hint="give each a name of its own: 'query' = 'SELECT a AS …'",
                )
            seen.add(column.name.lower())
        return found

    def _ask(self, connection: sa.Connection, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with driver_of(connection).cursor() as cursor:
            cursor.execute(query, values)
            return list(cursor.fetchall())

    # rows

    def wire(self, column: Column) -> sa.ColumnElement[Any]:
        """Returns what is selected for a column: a FLOAT is sent with six digits only, unless it is cast to DOUBLE."""
        if column.type == pa.float32():
            return named(column.name).op("+")(sa.text("0e0"))
        return super().wire(column)

    def _compiled(self, statement: sa.Select[Any]) -> tuple[str, dict[str, Any]]:
        made = statement.compile(dialect=self.engine.dialect, compile_kwargs={"render_postcompile": True})
        return str(made), dict(made.construct_params())

    def batches(
        self, connection: sa.Connection, statement: sa.Select[Any], schema: Schema
    ) -> Iterator[pa.RecordBatch]:
        driver = driver_of(connection)
        with driver.cursor() as cursor:
            query = cursor.mogrify(*self._compiled(statement))
        whole = False
        try:
            yield from streamed(driver, query, schema, self.values["fetch.size"])
            whole = True
        finally:
            if not whole:  # the rest of the rows is still to come: no other query can be sent here
                close_now(driver)
                connection.invalidate()

    def estimate(self, connection: sa.Connection) -> int | None:
        if self.rows.table is None or self.values["where"] is not None:
            return None
        found = self._ask(connection, _ESTIMATE, self.home, self.rows.table)
        return int(found[0][0]) if found and found[0][0] is not None else None

    # changes

    def log(self, owner: str, schema: Schema) -> Log:
        if self.rows.table is None or self.home is None:
            raise InvalidOption("changes are followed of a table, not of a query", hint="'table' = '…'")
        return BinLog(self, owner, schema)
