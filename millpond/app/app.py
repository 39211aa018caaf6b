"""Offers the app to programs: one SQL text, its tables and streams, and the queries between them."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args

import pyarrow as pa

from millpond.app.attach import attach
from millpond.app.readiness import Readiness
from millpond.app.runtime import Runtime, Settings, forget
from millpond.app.wiring import build
from millpond.changes import Offset
from millpond.clock import Clock
from millpond.engine_rule import Engine
from millpond.errors import AlreadyExists, InvalidOption, StateCorrupt
from millpond.journal.damage_report import survey
from millpond.journal.state import StateDirectory
from millpond.loading.progress import Report
from millpond.options import parse_size
from millpond.plan.connectors import StandIn
from millpond.plan.plans import PipelinePlan
from millpond.query.evaluate import Path as EvaluationPath
from millpond.query.result import Result
from millpond.query.table import Record, Table
from millpond.query.transaction import Transaction
from millpond.sql.bind import Params
from millpond.sql.userfunctions import UserFunction, make_function
from millpond.statements.sql_file import sql_of
from millpond.upgrade.decisions import Decision, raise_unasked
from millpond.upgrade.upgrade import Agree

if TYPE_CHECKING:
    from millpond.http.server import HttpServer

Init = TypeVar("Init", bound=Callable[..., None])
SWITCH_SECONDS = 0.0005
"""How long Python lets one thread run while others wait. Writers, pipelines and readers hand over to each other many
times in one commit; with Python's own 5 ms a program that reads without pause would slow each of these steps."""


def _shown(init: Init) -> Init:
    """Returns the signature that help() shows: without internal parameters."""
    signature = inspect.signature(init)
    own = [p for p in signature.parameters.values() if not p.name.startswith("_")]
    init.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    return init


class App:
    """Runs the streams, tables and queries of one SQL text.

    ``path_or_sql`` is the path of a SQL file, or SQL. ``state`` is the directory that keeps everything across
    restarts; without it nothing is kept. ``master`` is the Spark master, by default this machine's cores; ``store`` is
    a folder, or a URI such as ``s3a://…``, that a cluster's executors see, and through which they get rows. Spark
    starts beside the app with the first statement over a stream, else when a query first needs it. ``spark`` is a
    SparkSession of the program to use in its place: it is never stopped, and its settings stay as they are.
    ``engine`` says who evaluates the batches of running statements, and loads of files: with ``auto`` this process
    small ones and Spark the others, on every master; ``spark`` or ``process`` all of them.

        with App("CREATE TABLE t (id INT PRIMARY KEY, name STRING)") as app:
            app.table("t").insert({"id": 1, "name": "one"})
            app.sql("SELECT * FROM t").rows()

    ``functions`` are Python functions for SQL, as those of ``function``. Methods may be called by several threads.
    When the changes of a table in the state directory take more than ``compact_after``, and more than its rows, they
    are replaced by the rows: it bounds what a restart has to read beside the tables themselves. If the SQL is another
    than that of the state directory, what is stored follows it; ``upgrade`` says that this may drop or rebuild
    something; with ``shadow`` tables that are rebuilt stay beside the old ones, until ALTER TABLE … SWAP WITH.
    """

    @_shown
    def __init__(
        self,
        path_or_sql: str | os.PathLike[str] | None = None,
        *,
        state: str | os.PathLike[str] | None = None,
        master: str | None = None,
        spark: Any = None,
        store: str | None = None,
        engine: Engine = "auto",
        functions: Iterable[Callable[..., Any]] = (),
        compact_after: str = "8MB",
        upgrade: bool = False,
        shadow: bool = False,
        _on_progress: Report | None = None,
        _on_emit: Callable[[str, pa.Table], None] | None = None,
        _on_answer: Callable[[str, Result], None] | None = None,
        _on_status: Callable[[str], None] | None = None,
        _on_upgrade: Agree | None = None,
        _path: EvaluationPath = "auto",
        _read_only: bool = False,
        _defer: bool = False,
        _direct: bool = False,
        _clock: Clock | None = None,
        _stand_in: StandIn | None = None,
        _adopted: Callable[[PipelinePlan], Offset | None] | None = None,
    ):
        text = sql_of(path_or_sql)
        try:
            changes_kept = parse_size(compact_after)
        except ValueError as error:
            raise InvalidOption(f'compact_after = "{compact_after}": {error}') from None
        if engine not in get_args(Engine):
            raise InvalidOption(f'engine = "{engine}": it is one of {", ".join(get_args(Engine))}')
        if spark is not None:
            _check_spark(spark, master)
        self._on_progress = _on_progress or (lambda progress: None)
        self._functions: dict[str, UserFunction] = {}
        self._servers: list[HttpServer] = []
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        for function in functions:
            self.function(function)
        state_directory = StateDirectory(state, read_only=_read_only)
        settings = Settings(
            master=spark or master,
            store=store,
            engine=engine,
            compact_after=changes_kept,
            on_progress=lambda progress: self._on_progress(progress),
            on_emit=_on_emit,
            on_answer=_on_answer,
            on_status=_on_status or (lambda text: None),
            path=_path,
            read_only=_read_only,
            direct=_direct,
            clock=_clock or Clock(),
            stand_in=_stand_in,
            adopted=_adopted or (lambda plan: None),
        )
        try:
            self._runtime = build(state_directory, self._functions, settings)
        except BaseException as error:
            forget(self._functions)
            state_directory.close()
            _survey(error, state_directory)
            raise
        try:
            self._runtime.restorer.open()
            changed = text is not None and self._runtime.upgrades.prepare(
                text, _on_upgrade or _asked(upgrade), shadow=shadow
            )
            if changed:
                self._runtime.close_parts()
                self._runtime = build(state_directory, self._functions, settings)
                self._runtime.restorer.open(hiding=True)
            self._runtime.restorer.restore()
            self._runtime.compactor.begin()
            if text is not None:
                with self._runtime.upgrades.explaining(changed=changed):
                    self._runtime.texts.run_file(text)
                self._runtime.restorer.reveal()
                self._runtime.upgrades.finish()
            if not _defer:
                self._start()
        except BaseException as error:
            self.close()
            state_directory.close()
            _survey(error, state_directory)
            raise

    def _start(self) -> None:
        """Starts the running statements, each when its tables are loaded, and waits for all loads. With ``_defer``
        tables can be queried before; nothing runs until this is called.
        """
        self._runtime.start()

    def sql(self, text: str, params: Params = None) -> Result:
        """Runs one or several statements; the answer is the last one's. `?` and `:name` are bound to ``params``.

        All statements are checked before the first one runs.
        """
        return self._runtime.texts.ask(text, params)

    def table(self, name: str) -> Table:
        """Returns the table of that name."""
        return self._runtime.table(name)

    def attach(self, name: str, table: Table) -> None:
        """Makes a table of the program one of the app: its rows become those of the app's table of that name, which is
        made if there is none, and from then on it is that table.

        >>> users = Table({"id": "INT", "name": "STRING"}, key="id")
        >>> app.attach("users", users)
        """
        runtime = self._runtime
        with runtime.lock:
            runtime.lifetime.check_open()
            attach(name, table, runtime.catalog, self.sql, self.begin_transaction, self.table)

    def begin_transaction(self) -> Transaction:
        """Changes of several tables that become one commit: use it as a context manager."""
        return self._runtime.begin_transaction()

    def tables(self) -> list[str]:
        """Returns the names of all tables; error tables are not among them."""
        return self._runtime.table_names()

    def send(self, stream: str, rows: Record | Sequence[Record] | pa.Table | pa.RecordBatch) -> int:
        """Appends rows to an embedded stream, all or none, and answers how many.

        When it returns they are durable, if the app has a state directory.
        """
        return self._runtime.sender.send(stream, rows)

    def function(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        arguments: Sequence[str] | None = None,
        returns: str | None = None,
        vectorized: bool = False,
        public: bool = False,
    ) -> Callable[..., Any]:
        """Makes a Python function known to SQL; a decorator. Types are those of its annotations, or given as in SQL.

        It is called for each row, with None for NULL; with ``vectorized`` for whole columns, as Arrow arrays. HTTP
        clients may call it in their statements if it is ``public``; the app's own statements may in any case.
        Statements that are to go on after a restart need it before they do: ``App(functions=[f])``.
        """
        if function is None:
            return partial(
                self.function,
                name=name,
                arguments=arguments,
                returns=returns,
                vectorized=vectorized,
                public=public,
            )
        made = make_function(
            function, name=name, arguments=arguments, returns=returns, vectorized=vectorized, public=public
        )
        if made.name.lower() in self._functions:
            made.forget()
            raise AlreadyExists(f'function "{made.name}" already exists', hint="give it another name")
        self._functions[made.name.lower()] = made
        if hasattr(self, "_runtime"):
            self._runtime.plans.clear()
        return function

    def drain(self, timeout: float = 60.0) -> None:
        """Waits until everything that the sources held when it was called has taken effect.

        A failed query's error is raised at once; a time-out names what is behind.
        """
        self._runtime.drain(timeout)

    def ready(self) -> Readiness:
        """Returns an object that is true when every table is loaded and every query runs; it also tells what is
        loading, how far that is, and what is wrong.
        """
        return self._runtime.ready()

    def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        allow: Sequence[str] = (),
        origins: Sequence[str] = (),
        limits: Mapping[str, float] | None = None,
    ) -> HttpServer:
        """Answers over HTTP, in a thread of this process, until it or the app is closed. Port 0 takes a free one.

        Tokens are those of the environment (``MILLPOND_TOKEN_READ``, ``_WRITE``, ``_ADMIN``); an address that other
        machines reach needs one. ``allow`` are the beginnings of URIs that statements of clients may name,
        ``origins`` the sites whose pages may ask, ``limits`` what replaces the defaults of ``docs/http.md``.

        >>> server = app.serve(port=8080)
        >>> server.url
        'http://127.0.0.1:8080'
        """
        from millpond.http.open_server import open_server

        self._runtime.lifetime.check_open()
        server = open_server(self._runtime, host, port, allow=allow, origins=origins, limits=limits)
        self._servers.append(server)
        return server

    def close(self) -> None:
        """Lets current batches finish and stops the app. Spark stays up for other apps of the process."""
        if self._runtime.lifetime.closed:
            return
        for server in self._servers:
            server.close()
        self._runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        runtime = self._runtime
        many = f"{len(self.tables())} tables, {len(list(runtime.runner))} queries"
        return f"<App: {'closed' if runtime.lifetime.closed else many}>"


def runtime_of(app: App) -> Runtime:
    """Returns the parts of an app, for code that combines them with others."""
    return app._runtime  # noqa: SLF001  of the class above: no method of what users are given


def _survey(error: BaseException, state: StateDirectory) -> None:
    """Lets the error report what is left of a damaged state directory."""
    if isinstance(error, StateCorrupt):
        error.hint = f"{error.hint}. What is left: {survey(state.path)}"


def _asked(upgrade: bool) -> Agree:
    """Returns what refuses an upgrade that drops or rebuilds something, unless a program has agreed to it."""

    def agree(decisions: Sequence[Decision]) -> None:
        if not upgrade:
            raise_unasked(decisions, "App(…, upgrade=True) does it; EXPLAIN UPGRADE shows it")

    return agree


def _check_spark(spark: Any, master: str | None) -> None:
    if master is not None:
        raise InvalidOption(
            "spark and master are both given", hint="a session has its master: leave out master"
        )
    from millpond.engine.program_session import check_given

    check_given(spark)
