"""Reads a PostgreSQL database: its types, rows by COPY, snapshots shared by several readers, its changelog."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, NoReturn

import psycopg
import pyarrow as pa
import sqlalchemy as sa
from psycopg import sql
from sqlalchemy import exc

from millpond.connectors.cdc.database import HostedDatabase
from millpond.connectors.cdc.log import Log
from millpond.connectors.databases.uri import DatabaseAddress
from millpond.connectors.postgresql.cdc import PostgresLog
from millpond.connectors.postgresql.columns import ColumnReader, StrangeValue, can_read, column_reader
from millpond.connectors.postgresql.copy import copied
from millpond.connectors.postgresql.login import Connected, Login, explained
from millpond.connectors.postgresql.slot import Slot, slot_name
from millpond.connectors.postgresql.types import SETTINGS, Catalog
from millpond.errors import Error, InvalidOption, NotSupported, SourceChanged
from millpond.types import Column, Schema

_COLUMNS = (
    "SELECT a.attname::text, a.atttypid::int8, a.atttypmod, NOT a.attnotnull,"
    " (SELECT array_position(i.indkey::int2[], a.attnum) FROM pg_catalog.pg_index i"
    " WHERE i.indrelid = a.attrelid AND i.indisprimary)"
    " FROM pg_catalog.pg_attribute a WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped"
    " ORDER BY a.attnum"
)
_TABLES = (
    "SELECT CASE WHEN n.nspname = ANY (current_schemas(false)) THEN c.relname ELSE n.nspname || '.' || c.relname END"
    " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
    " AND n.nspname NOT LIKE 'pg\\_t%%'"
)
_ESTIMATE = (
    "SELECT sum(greatest(c.reltuples, 0))::int8, bool_or(c.reltuples < 0) FROM pg_catalog.pg_class c"
    " WHERE (c.oid = to_regclass(%s) AND c.relkind IN ('r', 'm', 'f'))"
    " OR c.oid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(to_regclass(%s)) t WHERE t.isleaf)"
)
_SIZE = (
    "SELECT coalesce(pg_relation_size(to_regclass(%s)), 0) + coalesce((SELECT sum(pg_relation_size(t.relid))"
    " FROM pg_catalog.pg_partition_tree(to_regclass(%s)) t), 0), pg_is_in_recovery()"
)
LARGE = 4 << 20
"""Bytes of a table that is read in columns."""


class PostgresDatabase(HostedDatabase):
    """Represents the database. Reads in transactions that change nothing."""

    dialect: ClassVar[str] = "postgres"
    drivername: ClassVar[str] = "postgresql+psycopg"
    login: Login

    def __init__(self, uri: str, place: DatabaseAddress, values: Mapping[str, Any]):
        super().__init__(uri, place, values)
        self.login = Login(place, values)
        self._snapshot_connection: Connected | None = None
        self._holding = threading.Lock()
        self._catalog = Catalog(self._ask_catalog)
        self._asking = threading.local()

    # connections

    def _connect(self) -> Any:
        return self.login.connect(autocommit=False)

    def enter(self, connection: sa.Connection, snapshot: str | None) -> None:
        level = "REPEATABLE READ" if snapshot is not None else self.values["transaction.isolation"].upper()
        connection.execution_options(isolation_level=level)
        if snapshot is not None:
            entered = sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot))
            try:
                _driver(connection).execute(entered)
            except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject):
                raise SourceChanged(f"the moment at which {self.name} is read is over") from None

    def prepared(self, connection: sa.Connection) -> None:
        timeout = self.values["query.timeout"]
        settings = {
            **SETTINGS,
            "transaction_read_only": "on",
            "statement_timeout": str(round(timeout * 1000) if timeout is not None else 0),
        }
        calls = sql.SQL(", ").join(
            sql.SQL("set_config({}, {}, true)").format(sql.Literal(n), sql.Literal(v))
            for n, v in settings.items()
        )
        _driver(connection).execute(sql.SQL("SELECT {}").format(calls))

    @contextmanager
    def explaining(self) -> Iterator[None]:
        with super().explaining():
            try:
                yield
            except psycopg.Error as error:
                raise self._in_words(error, lost=False) from None

    def explained(self, error: exc.SQLAlchemyError) -> Error:
        origin = getattr(error, "orig", None)
        if isinstance(origin, psycopg.Error):
            return self._in_words(origin, lost=bool(getattr(error, "connection_invalidated", False)))
        return super().explained(error)

    def _in_words(self, error: psycopg.Error, *, lost: bool) -> Error:
        unconnected = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
        return explained(error, self.name, self.login.user, lost=lost or unconnected)

    def close(self) -> None:
        self._let_go()
        super().close()

    # snapshots

    def snapshot(self) -> str | None:
        self._let_go()
        connection = self.login.open()
        with self._holding:
            self._snapshot_connection = connection
        self.login.ask(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return str(self.login.ask(connection, "SELECT pg_export_snapshot()")[0][0])

    def _let_go(self) -> None:
        with self._holding:
            connection, self._snapshot_connection = self._snapshot_connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    # columns

    @property
    def _regclass(self) -> str:
        parts = [p for p in (self.rows.schema, self.rows.table) if p is not None]
        return ".".join('"' + part.replace('"', '""') + '"' for part in parts)

    def discover(self, connection: sa.Connection) -> Schema:
        if self.rows.table is None:
            return self.discover_query(connection)
        found = self._ask(connection, _COLUMNS, (self._regclass,))
        if not found:
            self._refuse(connection)
        kinds = self._kinds(connection, [(row[1], row[2]) for row in found])
        columns = [Column(row[0], kind.arrow, row[3]) for row, kind in zip(found, kinds, strict=True)]
        key = sorted((row[4], row[0]) for row in found if row[4] is not None)
        return _distinct(Schema(tuple(columns), tuple(name for _, name in key)), self.rows.what)

    def discover_query(self, connection: sa.Connection) -> Schema:
        relation = self.rows.relation(poll=self.rows.query is None)
        result = self._described(connection, sa.select(sa.text("*")).select_from(relation))
        names = [(result.fname(i) or b"").decode() for i in range(result.nfields)]
        kinds = self._kinds(connection, _typed(result))
        found = Schema(tuple(Column(n, k.arrow) for n, k in zip(names, kinds, strict=True)))
        return _distinct(found, self.rows.what)

    def _refuse(self, connection: sa.Connection) -> NoReturn:
        if self._ask(connection, "SELECT to_regclass(%s)", (self._regclass,)) != [(None,)]:
            raise NotSupported(f"{self.rows.what} has no columns")
        self.no_table([row[0] for row in self._ask(connection, _TABLES)])

    def _kinds(self, connection: sa.Connection, wanted: Sequence[tuple[int, int]]) -> list[Any]:
        self._asking.connection = connection
        return self._catalog.types(wanted)

    def _ask_catalog(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._ask(self._asking.connection, query, values)

    def _ask(
        self, connection: sa.Connection, query: str, values: Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        try:
            return _driver(connection).execute(query.encode(), values).fetchall()
        except psycopg.Error as error:
            raise self._in_words(error, lost=_driver(connection).closed) from None

    def _described(self, connection: sa.Connection, statement: sa.Select[Any]) -> Any:
        """Returns the columns of a SELECT, as the server describes them."""
        query, values = self._compiled(statement.limit(0))
        try:
            result = _driver(connection).execute(query.encode(), values).pgresult
        except psycopg.Error as error:
            raise self._in_words(error, lost=_driver(connection).closed) from None
        assert result is not None
        return result

    # rows

    def reads(self, found: Column, wanted: Column) -> Column:
        """Returns how a column is read: as text every value can be read, as PostgreSQL writes it."""
        return Column(found.name, wanted.type) if wanted.type == pa.string() else found

    def _compiled(self, statement: sa.Select[Any]) -> tuple[str, dict[str, Any]]:
        made = statement.compile(dialect=self.engine.dialect, compile_kwargs={"render_postcompile": True})
        return str(made), dict(made.construct_params())

    def batches(
        self, connection: sa.Connection, statement: sa.Select[Any], schema: Schema
    ) -> Iterator[pa.RecordBatch]:
        typed = _typed(self._described(connection, statement))
        kinds = self._kinds(connection, typed)
        try:
            if statement.whereclause is None and can_read(schema, kinds, [number for number, _ in typed]):
                reader = self._column_reader(connection)
                if reader is not None:
                    try:
                        yield from reader.read(self._text(connection, statement), schema, kinds)
                        return
                    except StrangeValue:
                        # The text of the value is in the error that this raises.
                        for _ in self._copied(connection, statement, schema, kinds):
                            pass
                        raise SourceChanged(f"{self.name} has changed while it was read") from None
            yield from self._copied(connection, statement, schema, kinds)
        except psycopg.Error as error:
            raise self._in_words(error, lost=_driver(connection).closed) from None

    def _copied(
        self, connection: sa.Connection, statement: sa.Select[Any], schema: Schema, kinds: Sequence[Any]
    ) -> Iterator[pa.RecordBatch]:
        size, timeout = self.values["fetch.size"], self.values["socket.timeout"]
        text = self._text(connection, statement)
        return copied(_driver(connection), text, schema, kinds, size=size, timeout=timeout)

    def _text(self, connection: sa.Connection, statement: sa.Select[Any]) -> str:
        """Returns a SELECT with its values, which the driver quotes."""
        query, values = self._compiled(statement)
        return psycopg.ClientCursor(_driver(connection)).mogrify(query.encode(), values)

    def _column_reader(self, connection: sa.Connection) -> ColumnReader | None:
        """Returns what reads a large table in columns; None for small ones, for which a connection costs more, and if
        the time of an answer is limited.
        """
        if self.rows.table is None or self.values["query.timeout"] or self.values["socket.timeout"]:
            return None
        ((size, standby),) = self._ask(connection, _SIZE, (self._regclass, self._regclass))
        if standby or size < LARGE:
            return None
        ((snapshot,),) = self._ask(connection, "SELECT pg_export_snapshot()")
        return column_reader(self.login.conninfo, snapshot)

    def estimate(self, connection: sa.Connection) -> int | None:
        if self.rows.table is None or self.values["where"] is not None:
            return None
        ((rows, unknown),) = self._ask(connection, _ESTIMATE, (self._regclass, self._regclass))
        return None if unknown or rows is None else int(rows)

    # changes

    def log(self, owner: str, schema: Schema) -> Log:
        if self.rows.table is None:
            raise InvalidOption("changes are followed of a table, not of a query", hint="'table' = '…'")
        given = self.values["slot.name"]
        slot = Slot(self.login, slot_name(given, owner), self._regclass, own=given is None, owner=owner)
        return PostgresLog(self.login, slot, schema, warn_at=self.values["slot.lag.warn"])


def _driver(connection: sa.Connection) -> Connected:
    """Returns the connection of psycopg below one of SQLAlchemy, whose transaction has begun."""
    connection.get_transaction() or connection.begin()
    found: Any = connection.connection.driver_connection
    assert isinstance(found, psycopg.Connection)
    return found


def _typed(result: Any) -> list[tuple[int, int]]:
    return [(result.ftype(i), result.fmod(i)) for i in range(result.nfields)]


def _distinct(schema: Schema, what: str) -> Schema:
    """Checks names, which ignore case here, and not in PostgreSQL."""
    seen: set[str] = set()
    for name in schema.names:
        if name.lower() in seen:
            raise NotSupported(
                f'{what} has two columns "{name}"',
                hint="give each a name of its own: 'query' = 'SELECT a AS …'",
            )
        seen.add(name.lower())
    return schema
