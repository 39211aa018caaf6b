"""Evaluates queries with DuckDB over Arrow tables, without a copy."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond import allowance
from millpond.clock import Clock
from millpond.errors import Error, QueryFailed
from millpond.query import decimals
from millpond.query.jsonpaths import FUNCTIONS
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
"""No SQL that runs here reads a file or changes a setting, whoever wrote it."""
_TRIES = 3
"""How often a query is asked again that another one has broken DuckDB for."""
_BATCH_ROWS = 2_048
"""Rows after which the size of an answer is looked at: DuckDB makes as many at a time, and counts no bytes of them."""


def version() -> str:
    import duckdb

    return duckdb.__version__


def to_duckdb(query: Resolved) -> str:
    """The query in DuckDB's words. Raises ``Unrenderable``."""
    return render.render(rewrite(query.expression, FOR_DUCKDB))


def register_decimals(connection: duckdb.DuckDBPyConnection, sql: str, known: set[str]) -> None:
    """Makes the functions for wide decimals that the SQL calls, and are not ``known``, known."""
    for name, call, arguments, returns in decimals.functions_in(sql):
        if name not in known:
            from duckdb.func import ARROW, SPECIAL

            known.add(name)
            types: list[Any] = [render.duck(t) for t in arguments]
            connection.create_function(
                name, call, types, render.duck(returns), type=ARROW, null_handling=SPECIAL
            )


class NotAccepted(QueryFailed):
    """DuckDB does not take a query as it is written for it, whatever the rows are: Spark can be asked instead."""


class _Broken(NotAccepted):
    """DuckDB answers nothing any more, since a query has broken it: another one, or this."""


class Duck:
    """One in-memory DuckDB. Threads share it, each query on a connection of its own. With ``memory`` its queries take
    no more bytes than that, all together, and nothing goes to the disk instead: one that needs more fails."""

    def __init__(self, clock: Clock | None = None, memory: int | None = None) -> None:
        self._clock = clock or Clock()
        self._memory = memory
        self._lock = threading.Lock()
        self._root: duckdb.DuckDBPyConnection | None = None
        self._has_functions = self._has_spelling = False
        self._own: set[str] = set()

    def _settings(self) -> Iterator[str]:
        yield from _SETTINGS
        if self._memory is None:
            yield f"SET temp_directory = '{tempfile.gettempdir()}/millpond-duckdb-{os.getpid()}'"
        else:
            yield f"SET memory_limit = '{self._memory} B'"
            yield "SET temp_directory = ''"
        yield from _CLOSED

    def _connection(self, sql: str) -> tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]:
        """The database, and a connection to it that knows the functions of the SQL."""
        import duckdb

        functions = any(name in sql for name in FUNCTIONS)
        spelling = any(name in sql for name in SPELLING)

        with self._lock:
            if self._root is None:
                self._root = duckdb.connect(":memory:")
                for setting in self._settings():
                    self._root.execute(setting.replace("SET ", "SET GLOBAL ", 1))
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
            return self._root, self._root.cursor()

    def run(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The answer of a DuckDB query over named Arrow tables."""
        found = self._try(sql, tables)
        for _ in range(_TRIES):
            if not isinstance(found, _Broken):
                break
            found = self._try(sql, tables)
        if isinstance(found, Error):
            allowance.check()  # it may have failed because it was ended
            raise found
        return found

    def _try(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table | Error:
        """The answer, or the error. An error that is kept must not keep DuckDB's objects alive by its traceback.

        After a mistake of its own in a query DuckDB answers no other one, and a new one takes its place."""
        import duckdb

        planning = (
            duckdb.BinderException,
            duckdb.ParserException,
            duckdb.CatalogException,
            duckdb.NotImplementedException,
            duckdb.InternalException,
        )
        root, connection = self._connection(sql)
        try:
            with allowance.ending(connection.interrupt):
                if render.NOW in sql:
                    connection.execute(f"SET VARIABLE {render.NOW} = $now", {"now": self._clock.now()})
                for name, table in tables.items():
                    connection.register(name, table)
                found = connection.sql(sql)
                if self._memory is None:
                    return found.to_arrow_table()
                with found.to_arrow_reader(_BATCH_ROWS) as reader:
                    return _read(reader)
        except duckdb.FatalException:
            self._replace(root)
            return _Broken("the query cannot be answered in this form", hint="ask it again")
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if isinstance(error, duckdb.InternalException):
                self._replace(root)
            told = render.explain_error(error)
            if told is None and isinstance(error, planning):
                _log.info("DuckDB does not take %s: %s", sql, error)
                return NotAccepted(
                    "the query cannot be answered in this form",
                    hint="split it into steps, or write it in another form",
                )
            message, hint = told or (str(error).splitlines()[0], None)
            return QueryFailed(message, hint=hint)
        except Error as error:
            return error.with_traceback(None)
        finally:
            connection.close()

    def close(self) -> None:
        with self._lock:
            if self._root is not None:
                self._root.close()
            self._forget()

    def _replace(self, root: duckdb.DuckDBPyConnection) -> None:
        """Lets go of a database that has failed. Queries that run in it end by themselves."""
        with self._lock:
            if self._root is root:
                self._forget()

    def _forget(self) -> None:
        self._root, self._own = None, set()
        self._has_functions = self._has_spelling = False


def _read(reader: pa.RecordBatchReader) -> pa.Table:
    """All rows; no more of them than the thread may have."""
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
