"""Evaluates queries with DuckDB over Arrow tables, without a copy."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond import allowance
from millpond.clock import Clock
from millpond.errors import Error, QueryFailed
from millpond.query import decimals, internals
from millpond.query.idle import Connection, IdleConnections
from millpond.query.jsonpaths import FUNCTIONS
from millpond.query.low_priority import started_low
from millpond.query.spelling import FUNCTIONS as SPELLING
from millpond.sql.render import duckdb as render
from millpond.sql.resolve import Resolved
from millpond.sql.rewrite import FOR_DUCKDB, rewrite
from millpond.sql.userfunctions import functions_in

if TYPE_CHECKING:
    import duckdb

_log = logging.getLogger(__name__)
_SETTINGS = (
    *render.SETTINGS,
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET arrow_large_buffer_size = false",
)
_CLOSED = ("SET enable_external_access = false", "SET lock_configuration = true")
"""SQL that runs here cannot read a file or change a setting, whoever wrote it."""
_TRIES = 3
"""How often a query is retried after another one has broken DuckDB."""
_BATCH_ROWS = 2_048
"""Rows after which the size of a result is checked: DuckDB produces as many at a time, and does not count bytes."""


def version() -> str:
    import duckdb

    return duckdb.__version__


def to_duckdb(query: Resolved) -> str:
    """Renders the query for DuckDB. Raises ``Unrenderable``."""
    return render.render(rewrite(query.expression, FOR_DUCKDB))


def register_decimals(connection: duckdb.DuckDBPyConnection, sql: str, known: set[str]) -> None:
    """Registers the functions for wide decimals that the SQL calls, and that are not ``known``."""
    for name, call, arguments, returns in decimals.functions_in(sql):
        if name not in known:
            from duckdb.func import ARROW, SPECIAL

            known.add(name)
            types: list[Any] = [render.duck(t) for t in arguments]
            connection.create_function(
                name, call, types, render.duck(returns), type=ARROW, null_handling=SPECIAL
            )


def _check_files() -> None:
    """Raises OSError if the process cannot open a few files more: DuckDB would end it when it begins."""
    with ExitStack() as files:
        for _ in range(8):
            files.enter_context(open(os.devnull))


class NotAccepted(QueryFailed):
    """Reports that DuckDB refuses a query as rendered, whatever the rows are: Spark can run it instead."""


class _Broken(NotAccepted):
    """Reports that DuckDB does not work any more, because a query has broken it: another one, or this one."""


class Duck:
    """Represents one in-memory DuckDB. Threads share it, each query on its own connection. With ``memory`` its queries
    together use at most that many bytes, and nothing spills to disk: a query that needs more fails.
    """

    def __init__(self, clock: Clock | None = None, memory: int | None = None) -> None:
        self._clock = clock or Clock()
        self._memory = memory
        self._lock = threading.Lock()
        self._root: duckdb.DuckDBPyConnection | None = None
        self._idle = IdleConnections()
        self._has_functions = self._has_spelling = False
        self._own: set[str] = set()

    def _opened(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        root = duckdb.connect(":memory:")
        for setting in self._settings():
            root.execute(setting.replace("SET ", "SET GLOBAL ", 1))
        return root

    def _settings(self) -> Iterator[str]:
        yield from _SETTINGS
        if self._memory is None:
            yield f"SET temp_directory = '{tempfile.gettempdir()}/millpond-duckdb-{os.getpid()}'"
        else:
            yield f"SET memory_limit = '{self._memory} B'"
            yield "SET temp_directory = ''"
        yield from _CLOSED

    def _connection(self, sql: str, tables: Mapping[str, pa.Table]) -> Connection:
        """Returns a connection to a database that has the functions of the SQL; it may have the tables."""
        functions = any(name in sql for name in FUNCTIONS)
        spelling = any(name in sql for name in SPELLING)

        with self._lock:
            if self._root is None:
                _check_files()
                self._root = started_low(self._opened)
            if functions and not self._has_functions:
                from duckdb.func import ARROW, SPECIAL

                self._has_functions = True
                for name, (function, element) in FUNCTIONS.items():
                    self._root.create_function(
                        name,
                        function,
                        ["VARCHAR", "VARCHAR"],
                        f"{render.duck(element)}[]",
                        type=ARROW,
                        null_handling=SPECIAL,
                    )
            if spelling and not self._has_spelling:
                from duckdb.func import ARROW, SPECIAL

                self._has_spelling = True
                for name, made in SPELLING.items():
                    arguments: list[Any] = [*made.arguments]
                    self._root.create_function(
                        name, made.call, arguments, made.returns, type=ARROW, null_handling=SPECIAL
                    )
            for own in functions_in(sql):
                if own.key not in self._own:
                    from duckdb.func import ARROW, SPECIAL

                    self._own.add(own.key)
                    types: list[Any] = [render.duck(t) for t in own.arguments]
                    self._root.create_function(
                        own.key, own.call, types, render.duck(own.returns), type=ARROW, null_handling=SPECIAL
                    )
            register_decimals(self._root, sql, self._own)
            return self._idle.take(self._root, tables) or Connection(self._root, self._root.cursor())

    def run(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Returns the result of a DuckDB query over named Arrow tables."""
        found = self._try(sql, tables)
        for _ in range(_TRIES):
            if not isinstance(found, _Broken):
                break
            found = self._try(sql, tables)
        if isinstance(found, Error):
            allowance.check()  # it may have failed because it was cancelled
            raise found
        return found

    def _try(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table | Error:
        """Returns the result, or the error. A stored error must not keep DuckDB's objects alive by its traceback.

        After an internal error in a query DuckDB accepts no other one, and a new database replaces it.
        """
        import duckdb

        planning = (
            duckdb.BinderException,
            duckdb.ParserException,
            duckdb.CatalogException,
            duckdb.NotImplementedException,
            duckdb.InternalException,
        )
        connection = self._connection(sql, tables)
        root, cursor = connection.root, connection.cursor
        whole = False
        try:
            with allowance.ending(cursor.interrupt):
                if render.NOW in sql:
                    cursor.execute(f"SET VARIABLE {render.NOW} = $now", {"now": self._clock.now()})
                connection.register(tables)
                answer = self._answer(cursor, sql)
            whole = True
            return answer
        except duckdb.FatalException:
            self._replace(root)
            return _Broken("the query cannot be answered in this form", hint="ask it again")
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if isinstance(error, duckdb.InternalException):
                self._replace(root)
            explained = render.explain_error(error)
            if explained is None and isinstance(error, planning):
                _log.info("DuckDB does not take %s: %s", sql, error)
                return NotAccepted(
                    "the query cannot be answered in this form",
                    hint="split it into steps, or write it in another form",
                )
            message, hint = explained or (str(error).splitlines()[0], None)
            return QueryFailed(message, hint=hint)
        except Error as error:
            return error.with_traceback(None)
        finally:
            if whole and root is self._root:
                self._idle.put(connection)
            else:
                cursor.close()

    def _answer(self, cursor: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
        if self._memory is None:
            return internals.table_of(cursor, sql)
        with internals.reader_of(cursor, sql, _BATCH_ROWS) as reader:
            return _read(reader)

    def close(self) -> None:
        """Closes the database. One in which queries of other threads run ends with the last of them."""
        import duckdb

        with self._lock:
            if self._root is not None:
                with suppress(duckdb.ResourceInUseException):
                    self._root.close()
            self._forget()

    def _replace(self, root: duckdb.DuckDBPyConnection) -> None:
        """Releases a database that has failed. Queries that run in it end by themselves."""
        with self._lock:
            if self._root is root:
                self._forget()

    def _forget(self) -> None:
        self._idle.clear()
        self._root, self._own = None, set()
        self._has_functions = self._has_spelling = False


def _read(reader: pa.RecordBatchReader) -> pa.Table:
    """Reads all rows; no more of them than the thread may have."""
    limit = allowance.current()
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if limit is not None:
            limit.check_size(rows, size)
    return pa.Table.from_batches(batches, reader.schema)
