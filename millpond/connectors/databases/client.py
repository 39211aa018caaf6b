"""Queries a database through SQLAlchemy. Each kind of database is a subclass."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import event, exc, pool

from millpond.connectors.databases.arrow import array_of, arrow_type, discovered
from millpond.connectors.databases.information_schema import from_information_schema
from millpond.connectors.databases.selects import Rows, condition
from millpond.connectors.databases.sqltext import check_query, named
from millpond.connectors.databases.uri import DatabaseAddress
from millpond.errors import (
    ConnectionLost,
    Error,
    InvalidOption,
    SourceError,
    TableMissing,
    did_you_mean,
    without_passwords,
)
from millpond.predicates import Predicate
from millpond.types import Column, Schema

if TYPE_CHECKING:
    pass

SAMPLE = 1_000
"""Rows from which the columns of a query are discovered, if the database does not describe them."""


_EARLY = (-(2**53), "0001-01-01")
"""Possible values of the ? of an incremental query before the type of its column is known."""


class Database(ABC):
    """Represents a database and the rows that are read from it. Thread-safe."""

    dialect: ClassVar[str] = ""
    """The name that sqlglot has for its SQL."""
    first_day: ClassVar[date] = date(1000, 1, 1)
    """A day before all others that its times can be compared with."""

    def __init__(self, uri: str, address: DatabaseAddress, values: Mapping[str, Any]):
        self.uri = uri
        self.address = address
        self.values = values
        self.rows = Rows(address.table, values, self.dialect)
        if values["pool.validation.query"] is not None:
            check_query("pool.validation.query", values["pool.validation.query"], self.dialect)
        self._engine: sa.Engine | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Returns its name in messages: without a login, without parameters."""
        return without_passwords(self.uri.partition("?")[0])

    # connections

    @abstractmethod
    def url(self) -> sa.URL:
        """Returns the URL that SQLAlchemy connects to."""

    def connect_args(self) -> dict[str, Any]:
        """Returns further arguments of the driver's connect."""
        return {}

    def prepared(self, connection: sa.Connection) -> None:
        """Sets up the session of a connection before it reads. Called in its transaction, before anything else."""
        return

    @property
    def engine(self) -> sa.Engine:
        with self._lock:
            if self._engine is None:
                self._engine = self._made()
            return self._engine

    def _made(self) -> sa.Engine:
        values = self.values
        size = max(values["pool.size"], values["parallel.readers"] + 1)
        kept = min(values["pool.max.idle"], size)
        try:
            engine = (
                sa.create_engine(
                    self.url(),
                    connect_args=self.connect_args(),
                    poolclass=pool.QueuePool,
                    pool_size=kept,
                    max_overflow=size - kept,
                    pool_timeout=values["connect.timeout"],
                    pool_pre_ping=values["pool.validation.query"] is None,
                    pool_reset_on_return="rollback",
                )
                if kept
                else sa.create_engine(self.url(), connect_args=self.connect_args(), poolclass=pool.NullPool)
            )
        except exc.NoSuchModuleError:
            raise
        except exc.ArgumentError as error:
            raise InvalidOption(
                f'"{self.name}" is no URL of SQLAlchemy: {without_passwords(str(error))}'
            ) from None
        validation = values["pool.validation.query"]
        if validation is not None:
            event.listen(
                engine, "checkout", lambda connection, *_: self._validate(engine, connection, validation)
            )
        return engine

    def _validate(self, engine: sa.Engine, connection: Any, query: str) -> None:
        """Checks a pooled connection before it is used; a lost one is replaced by the pool."""
        cursor = connection.cursor()
        try:
            cursor.execute(query)
            cursor.fetchall()
        except Exception as error:
            if engine.dialect.is_disconnect(error, connection, cursor):  # type: ignore[arg-type]
                raise exc.DisconnectionError(str(error)) from error
            said = without_passwords(str(error).partition("\n")[0])
            raise InvalidOption(f'option "pool.validation.query" fails at {self.name}: {said}') from None
        finally:
            cursor.close()
            connection.rollback()

    @contextmanager
    def connected(self, snapshot: str | None = None) -> Iterator[sa.Connection]:
        """Opens a connection in a transaction, which sees the database at a ``snapshot`` if one is named.
        Errors of the driver are translated.
        """
        with self.explaining(), self.engine.connect() as connection:
            self.enter(connection, snapshot)
            self.prepared(connection)
            yield connection

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Translates errors of the driver."""
        try:
            yield
        except Error:
            raise
        except exc.SQLAlchemyError as error:
            raise self.explained(error) from None

    def explained(self, error: exc.SQLAlchemyError) -> Error:
        """Returns an error of SQLAlchemy or its driver as one of Millpond's."""
        said = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        text = without_passwords(f"{self.name}: {said}")
        if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
            return ConnectionLost(text)
        if isinstance(error, exc.TimeoutError):
            return ConnectionLost(text, hint="'pool.size' is the most connections at a time")
        return SourceError(text)

    def close(self) -> None:
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None

    # snapshots

    def snapshot(self) -> str | None:
        """Returns the name of a snapshot that several connections can see, held until the next one or ``close``; None
        if the database has none.
        """
        return None

    def enter(self, connection: sa.Connection, snapshot: str | None) -> None:
        """Makes a connection see the database at a snapshot, for the duration of its transaction."""
        return

    # columns

    def discover(self, connection: sa.Connection) -> Schema:
        """Returns the columns, and the key if there is one."""
        if self.rows.table is None:
            return self.discover_query(connection)
        inspector = sa.inspect(connection)
        try:
            columns = inspector.get_columns(self.rows.table, self.rows.schema)
        except exc.NoSuchTableError:
            self.refuse_table(inspector)
        except (NotImplementedError, exc.DBAPIError):  # a dialect that cannot describe it
            connection.rollback()
            return from_information_schema(connection, self.rows) or self.refuse_table(inspector)
        if not columns:
            self.refuse_table(inspector)
        key: Sequence[str] = ()
        try:
            key = inspector.get_pk_constraint(self.rows.table, self.rows.schema)["constrained_columns"] or ()
        except (NotImplementedError, exc.SQLAlchemyError):
            key = ()
        found = tuple(
            Column(c["name"], arrow_type(c["name"], c["type"]), bool(c.get("nullable", True)))
            for c in columns
        )
        return Schema(found, tuple(key))

    def discover_query(self, connection: sa.Connection) -> Schema:
        """Returns the columns of a query: from its first rows."""
        found: tuple[list[str], list[Any]] = ([], [])
        for since in (None,) if self.rows.query is not None else _EARLY:
            relation = self.rows.relation(since=since, poll=self.rows.query is None)
            result = connection.execute(sa.select(sa.text("*")).select_from(relation).limit(SAMPLE))
            found = list(result.keys()), list(result.fetchall())
            if found[1]:
                break
        return discovered(*found)

    def refuse_table(self, inspector: sa.Inspector) -> NoReturn:
        """Raises TableMissing, with the names that exist."""
        schema, _table = self.rows.schema, self.rows.table
        try:
            known = [*inspector.get_table_names(schema), *inspector.get_view_names(schema)]
        except (NotImplementedError, exc.SQLAlchemyError):
            known = []
        self.no_table(known)

    def no_table(self, known: Sequence[str]) -> NoReturn:
        there = f"there are: {', '.join(sorted(known)[:20])}" if known else "there are no tables"
        raise TableMissing(
            f"{self.name} has no {self.rows.what}", hint=did_you_mean(self.rows.table or "", known, there)
        )

    # rows

    def reads(self, found: Column, wanted: Column) -> Column:
        """Returns how an existing column is read if it is declared as ``wanted``; the result is cast to that."""
        return found

    def wire(self, column: Column) -> sa.ColumnElement[Any]:
        """Returns what is selected for a column."""
        return named(column.name)

    def condition(self, predicate: Predicate) -> sa.ColumnElement[bool]:
        """Returns the condition of a predicate as it is sent."""
        return condition(predicate)

    def batches(
        self, connection: sa.Connection, statement: sa.Select[Any], schema: Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a SELECT of exactly the columns of ``schema``, as they arrive: no more of them are in
        memory than ``fetch.size`` and what was passed on.
        """
        size = self.values["fetch.size"]
        options = {"stream_results": True, "max_row_buffer": size}
        result = connection.execution_options(**options).execute(statement)
        arrow = schema.arrow()
        for rows in result.partitions(size):
            columns = zip(*rows, strict=True)
            arrays = [array_of(c.name, c.type, list(v)) for c, v in zip(schema, columns, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=arrow)

    def compares(self, dtype: pa.DataType, operator: str) -> bool:
        """Returns whether the database compares values of a type with a constant as Spark does. Texts are only compared
        by ``=``: their order, and which are alike, depends on collations, and equal texts are alike in all of them.
        """
        return (pa.types.is_string(dtype) and operator == "=") or pa.types.is_integer(dtype)

    def estimate(self, connection: sa.Connection) -> int | None:
        """Returns the approximate number of rows; None if only a query would tell."""
        if self.rows.table is None or self.rows.cut:
            return None
        return int(connection.execute(self.rows.one(sa.func.count())).scalar() or 0)
