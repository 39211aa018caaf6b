"""Defines the command ``millpond``. Importing it loads no Spark, no DuckDB and no Arrow; each command loads what it
needs.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from millpond.cli import adopt, check, demo, explain, jars, query, run, shell, tables, test, top, upgrade
from millpond.cli.error_report import say

app = typer.Typer(
    name="millpond",
    help="Streaming SQL with live tables, on Spark.",
    epilog="Start with: millpond demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command(epilog=run.EXAMPLES)(run.run)
app.command(epilog=query.EXAMPLES)(query.query)
app.command(epilog=check.EXAMPLES)(check.check)
app.command(epilog=explain.EXAMPLES)(explain.explain)
app.command(name="sql", epilog=shell.EXAMPLES)(shell.shell)
app.command(epilog=tables.EXAMPLES)(tables.tables)
app.command(epilog=top.EXAMPLES)(top.top)
app.command(epilog=test.EXAMPLES)(test.test)
app.command(epilog=upgrade.EXAMPLES)(upgrade.upgrade)
app.command(epilog=adopt.EXAMPLES)(adopt.adopt)
app.command(epilog=demo.EXAMPLES)(demo.demo)
app.command(epilog=jars.EXAMPLES)(jars.jars)


def _version(asked: bool) -> None:
    if asked:
        from millpond import __version__

        print(f"millpond {__version__}")
        raise typer.Exit


@app.callback()
def millpond(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    _log_to_the_person()


def main() -> None:
    """Runs the command; the entry point of the package."""
    _take_interrupts()
    try:
        app()
    except SystemExit as end:
        if "duckdb" in sys.modules:
            _leave(end.code)
        raise


def _take_interrupts() -> None:
    """Enables Ctrl-C: a shell starts background processes with Ctrl-C ignored, and that is inherited."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(code: str | int | None) -> NoReturn:
    """Ends without Python's own clean-up: DuckDB would complain about every object that a thread still uses."""
    atexit._run_exitfuncs()  # noqa: SLF001  os._exit does not call them
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {record.getMessage()}")


def _log_to_the_person() -> None:
    log = logging.getLogger("millpond")
    if not any(isinstance(handler, _Said) for handler in log.handlers):
        log.addHandler(_Said(logging.WARNING))
    log.propagate = False
    # Problems between Spark and us are reported by our own errors.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
