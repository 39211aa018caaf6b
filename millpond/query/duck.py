"""Queries answered by DuckDB over Arrow tables, without a copy."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.clock import Clock
from millpond.errors import QueryFailed
from millpond.query.jsonpaths import FUNCTIONS
from millpond.sql.render import duckdb as render
from millpond.sql.resolve import Resolved
from millpond.sql.rewrite import FOR_DUCKDB, rewrite
from millpond.sql.userfunctions import functions_in

if TYPE_CHECKING:
    import duckdb

_SETTINGS = (
    *render.SETTINGS,
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET arrow_large_buffer_size = false",
)


def to_duckdb(query: Resolved) -> str:
    """The query in DuckDB's words. Raises ``Unrenderable``."""
    return render.render(rewrite(query.expression, FOR_DUCKDB))


class Duck:
    """One in-memory DuckDB. Threads share it, each query on a connection of its own."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._root: duckdb.DuckDBPyConnection | None = None
        self._has_functions = False
        self._own: set[str] = set()
        self._at_work: dict[int, duckdb.DuckDBPyConnection] = {}

    def interrupt(self, thread: int) -> None:
        """Ends the query that a thread runs just now, if it does; that fails then."""
        with self._lock:
            connection = self._at_work.get(thread)
            if connection is not None:
                connection.interrupt()

    def _connection(self, sql: str) -> duckdb.DuckDBPyConnection:
        import duckdb

        functions = any(name in sql for name in FUNCTIONS)

        with self._lock:
            if self._root is None:
                self._root = duckdb.connect(":memory:")
                for setting in _SETTINGS:
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
            for own in functions_in(sql):
                if own.key not in self._own:
                    from duckdb.func import ARROW, SPECIAL

                    self._own.add(own.key)
                    types: list[Any] = [render.duck(t) for t in own.arguments]
                    self._root.create_function(
                        own.key, own.call, types, render.duck(own.returns), type=ARROW, null_handling=SPECIAL
                    )
            return self._root.cursor()

    def run(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The answer of a DuckDB query over named Arrow tables."""
        found = self._try(sql, tables)
        if isinstance(found, QueryFailed):
            raise found
        return found

    def _try(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table | QueryFailed:
        """The answer, or the error. An error that is kept must not keep DuckDB's objects alive by its traceback."""
        import duckdb

        connection = self._connection(sql)
        thread = threading.get_ident()
        self._at_work[thread] = connection
        try:
            if render.NOW in sql:
                connection.execute(f"SET VARIABLE {render.NOW} = $now", {"now": self._clock.now()})
            for name, table in tables.items():
                connection.register(name, table)
            return connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            message, hint = render.explain_error(error) or (str(error).splitlines()[0], None)
            return QueryFailed(message, hint=hint)
        finally:
            with self._lock:
                self._at_work.pop(thread, None)
            connection.close()

    def close(self) -> None:
        with self._lock:
            if self._root is not None:
                self._root.close()
                self._root, self._has_functions, self._own = None, False, set()
