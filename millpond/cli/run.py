"""Implements ``millpond run``: runs an app from its SQL file, until it is stopped or has processed everything."""

from __future__ import annotations

import math
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.confirmation import Agreeing
from millpond.cli.error_report import INTERRUPTED, Report, reporting
from millpond.cli.output import Format, Printer
from millpond.cli.progress import Loading
from millpond.cli.signals import Stopping
from millpond.cli.sqlfile import read_sql
from millpond.engine_rule import Engine
from millpond.errors import Error, StateLocked

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.query.result import Result

EXAMPLES = """
Examples:

  millpond run app.sql

  millpond run app.sql --state ./state

  millpond run app.sql --once --format csv > rows.csv

  millpond run app.sql --http 8080

The rows of queries on streams are printed as they arrive. Queries on tables are answered once, after everything
that was there at the start has been processed. Ctrl-C or SIGTERM stops the app; with --state it continues where
it stopped. A row is printed before its position is stored: after kill -9 the last rows may be printed twice, none
is lost. If the file has changed since, what is stored follows it, as millpond upgrade does.

Exit code: 0 stopped or, with --once, done; 1 an error in the app or no such file; 2 wrong usage;
130 --once was interrupted.
"""

_LOCK_PATIENCE = 2.0
"""Seconds to wait for a query that reads the state directory just now."""


def run(
    file: Annotated[Path, typer.Argument(help="The SQL file.", metavar="APP.SQL")],
    once: Annotated[bool, typer.Option("--once", help="Process what is there, then exit.")] = False,
    state: Annotated[
        Path | None, typer.Option(help="The state directory; without it nothing is stored.", metavar="DIR")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="The Spark master; this machine by default.", metavar="URL")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Where a cluster's executors get rows: a folder or URI that all see.", metavar="URI"
        ),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(help="Who evaluates batches: auto, spark or process.", metavar="ENGINE"),
    ] = "auto",
    format: Annotated[Format, typer.Option(help="How rows are written.")] = Format.table,
    http: Annotated[
        str | None,
        typer.Option(help="Serve HTTP as well; port 0 picks a free one.", metavar="[HOST:]PORT"),
    ] = None,
    http_allow: Annotated[
        list[str] | None,
        typer.Option(help="A prefix of the URIs that HTTP clients may use.", metavar="PREFIX"),
    ] = None,
    http_origin: Annotated[
        list[str] | None,
        typer.Option(help="A web origin whose pages may use the HTTP API.", metavar="ORIGIN"),
    ] = None,
    compact_after: Annotated[
        str,
        typer.Option(
            help="Minimum size of the changes of a table before they are compacted.", metavar="SIZE"
        ),
    ] = "8MB",
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="Do not ask if the file has changed and something is dropped, rebuilt or run again."
        ),
    ] = False,
    shadow: Annotated[
        bool,
        typer.Option(
            "--shadow", help="If the file has changed, build tables beside the old ones, and keep both."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Runs the app of a SQL file and answers `millpond query` meanwhile."""
    if http is None and (http_allow or http_origin):
        raise typer.BadParameter("it needs --http", param_hint="--http-allow, --http-origin")
    with reporting(str(file), verbose=verbose) as report:
        from millpond.sql.text import Script

        server = Server.of(http, http_allow, http_origin)
        report.mask = Script.of(read_sql(file)).mask
        Run(
            file,
            state,
            master,
            store,
            engine,
            compact_after,
            Printer(format),
            report,
            server,
            yes=yes,
            shadow=shadow,
        ).until_done(once=once)


@dataclass(frozen=True)
class Server:
    """Describes where to serve HTTP, and what its clients may name."""

    host: str
    port: int
    allow: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    @staticmethod
    def of(address: str | None, allow: list[str] | None, origins: list[str] | None) -> Server | None:
        """Returns the server that the options describe; None without --http. Raises before anything starts if it is not
        possible.
        """
        from millpond.http.settings import Settings, address_of, tokens_of

        if address is None:
            return None
        made = Server(*address_of(address), tuple(allow or ()), tuple(origins or ()))
        Settings(made.host, made.port, tokens_of(), made.allow, made.origins)
        return made


class Run:
    """Represents one run of an app: its results, its socket, its end."""

    def __init__(
        self,
        file: Path,
        state: Path | None,
        master: str | None,
        store: str | None,
        engine: Engine,
        compact_after: str,
        printer: Printer,
        report: Report,
        server: Server | None = None,
        *,
        yes: bool = False,
        shadow: bool = False,
    ):
        self._shadow = shadow
        self._server = server
        self._agree = Agreeing(report, yes=yes)
        self._file = file
        self._state = state
        self._master = master
        self._store = store
        self._engine = engine
        self._compact_after = compact_after
        self._printer = printer
        self._report = report
        self._answers: list[tuple[str, Result]] = []
        self._reported: set[str] = set()

    def until_done(self, *, once: bool) -> None:
        from millpond.app.app import runtime_of
        from millpond.cli.registry import Registration
        from millpond.http.socket import SocketServer

        loading = Loading()
        with Stopping() as stopping, Registration() as registration:
            try:
                app = self._open(loading)
            except BaseException as error:
                loading.close()
                if not isinstance(error, KeyboardInterrupt):
                    raise
                self._report.note("stopped while loading")
                raise typer.Exit(INTERRUPTED if once else 0) from None
            with app:
                parts = runtime_of(app)
                with SocketServer(parts), self._http(app):
                    # Tables can be queried from here on, before Spark is up.
                    registration.ready(parts.state.path)
                    self._start(app, loading, once=once)
                    stopping.gently()
                    try:
                        self._process(app, stopping, once=once)
                    except Error as error:
                        parts.secrets.mask_error(error)
                        if not self._printer.broken:
                            raise
                        raise BrokenPipeError from None
                self._report.note("done" if once else "stopped")

    @contextmanager
    def _http(self, app: App) -> Iterator[None]:
        """Serves HTTP meanwhile, if requested: also while tables load."""
        if self._server is None:
            yield
            return
        wanted = self._server
        with app.serve(wanted.host, wanted.port, allow=wanted.allow, origins=wanted.origins) as server:
            self._report.note(f"answering at {server.url}")
            yield

    def _start(self, app: App, loading: Loading, *, once: bool) -> None:
        from millpond.app.app import runtime_of

        try:
            runtime_of(app).start()
        except KeyboardInterrupt:
            self._report.note("stopped while starting")
            raise typer.Exit(INTERRUPTED if once else 0) from None
        finally:
            loading.started()

    def _open(self, loading: Loading) -> App:
        from millpond.app.app import App

        deadline = time.monotonic() + _LOCK_PATIENCE
        while True:
            try:
                return App(
                    self._file,
                    state=self._state,
                    master=self._master,
                    store=self._store,
                    engine=self._engine,
                    compact_after=self._compact_after,
                    _on_progress=loading.report,
                    _on_status=loading.status,
                    _on_upgrade=self._agree,
                    shadow=self._shadow,
                    _on_emit=self._printer.live,
                    _on_answer=lambda text, result: self._answers.append((text, result)),
                    _defer=True,
                )
            except StateLocked:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _process(self, app: App, stopping: Stopping, *, once: bool) -> None:
        if not once:
            self._say_running(app)
        failed: list[Exception] = []

        def catch_up() -> None:
            try:
                app.drain(math.inf)
                self._print_answers(app)
            except Exception as error:
                failed.append(error)

        catching_up = threading.Thread(target=catch_up, name="millpond-catch-up", daemon=True)
        catching_up.start()
        while not stopping.asked.wait(0.1):
            if failed:
                raise failed[0]
            if once and not catching_up.is_alive():
                break
            self._look_for_failures(app)
        if failed:
            raise failed[0]
        if once and stopping.asked.is_set():
            self._report.note("interrupted before everything was processed")
            raise typer.Exit(INTERRUPTED)

    def _look_for_failures(self, app: App) -> None:
        """Reports queries that fail, while the others continue; with the last one the run ends."""
        from millpond.app.app import runtime_of

        parts = runtime_of(app)
        running = list(parts.runner)
        failed = {p.name: p for p in running if p.state == "failed"}
        if failed and (self._printer.broken or len(failed) == len(running)):
            parts.runner.check()
        for name in failed.keys() - self._reported:
            error = failed[name].error
            self._report.note(
                f"{parts.secrets.mask(error.message) if error else name}; the other queries continue"
            )
        self._reported = set(failed)

    def _print_answers(self, app: App) -> None:
        """Prints the results of the table queries of the file, as of now; of one whose tables were dropped further
        down, as of then.
        """
        from millpond.app.app import runtime_of

        for text, result in self._answers:
            if list(runtime_of(app).runner):
                try:
                    result = app.sql(text)
                except Error as error:
                    self._report.note(f"answered before the streams ran: {error.message}")
            self._printer.answer(result.to_arrow())

    def _say_running(self, app: App) -> None:
        from millpond.app.app import runtime_of
        from millpond.sql.printer import print_name

        tables = app.tables()
        where = f" --state {shlex.quote(str(self._state))}" if self._state else ""
        example = f"SELECT * FROM {print_name(tables[-1])} LIMIT 10" if tables else "SHOW STREAMS"
        asked = f'"{example}"' if "`" not in example else shlex.quote(example)
        queries = _many(len(list(runtime_of(app).runner)), "query", "queries")
        self._report.note(
            f"running {self._file}: {_many(len(tables), 'table', 'tables')}, {queries}; "
            + (f"state in {self._state}" if self._state else "no --state, nothing is stored")
            + f"\n  query it: millpond query {asked}{where}\n  stop it:  Ctrl-C"
        )


def _many(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
