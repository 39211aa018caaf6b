"""Implements ``millpond sql``: runs statements typed by a person, or piped in."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.error_report import Report, reporting, say
from millpond.cli.output import Format, Printer
from millpond.cli.query import show
from millpond.cli.splitter import is_command, split_statements
from millpond.errors import Error

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.cli.sessions import Session

EXAMPLES = """
Examples:

  millpond sql

  millpond sql --state ./state

  echo "SELECT COUNT(*) AS n FROM prices;" | millpond sql --state ./state --format json

  echo "EXPLAIN FORMAT SVG SELECT * FROM prices" | millpond sql --state ./state > plan.svg

It asks the app that runs on the state directory (without --state: the one that you are running), or is an app
of its own. A statement ends with a semicolon. A query on a stream shows rows until Ctrl-C.

  \\d         tables and streams

  \\d name    the columns of one

  \\timing    how long each statement takes, on or off

  help, \\?   these commands

  exit, quit, \\q   the end

BEGIN; opens a transaction: what follows counts when COMMIT; is typed, or not at all (ROLLBACK;). On a terminal long
answers are shown by the program in PAGER (less by default).

Exit code: 0; with statements from a pipe 1 at the first error.
"""

HELP = r"\d  tables and streams    \d name  columns    \timing  on or off    help  this    exit  the end"


def shell(
    state: Annotated[Path | None, typer.Option(help="The state directory of the app.", metavar="DIR")] = None,
    format: Annotated[Format, typer.Option(help="How rows are written.")] = Format.table,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Runs a shell: statements with history and completion, or from standard input."""
    with reporting("sql", verbose=verbose) as report:
        from millpond.cli.sessions import open_session

        def own() -> App:
            from millpond.app.app import App

            return App(state=state, _on_status=say)

        with open_session(state, own) as session:
            talks = sys.stdin.isatty()
            shell = Shell(session, Printer(format, paged=talks and sys.stdout.isatty()), report)
            if talks:
                _converse(shell, state)
            elif not shell.run_all(sys.stdin.read()):
                raise typer.Exit(1)


class Shell:
    """Runs a line, wherever it comes from."""

    def __init__(self, session: Session, printer: Printer, report: Report):
        self.session = session
        self._printer = printer
        self._report = report
        self._timing = False

    def run_all(self, text: str) -> bool:
        """Runs the statements of a text up to the first error; returns whether all succeeded."""
        with suppress(EOFError):
            return all(self.run(statement) for statement in split_statements(text, unfinished=True))
        return True

    def run(self, statement: str) -> bool:
        """Runs one statement or command, and reports its error."""
        began = time.monotonic()
        command = is_command(statement)
        try:
            if command:
                self._command(statement.strip())
            else:
                show(self.session.ask(statement), self._printer)
        except KeyboardInterrupt:
            say("")
        except (BrokenPipeError, EOFError):
            raise
        except Exception as error:
            self._report.error(error)
            return False
        if self._timing and not command:
            say(f"{(time.monotonic() - began) * 1000:,.1f} ms")
        return True

    def _command(self, line: str) -> None:
        word, _, rest = line.rstrip("; ").partition(" ")
        match word if word.startswith("\\") else word.lower():
            case "\\d" if rest:
                show(self.session.ask(f"DESCRIBE {rest.strip()}"), self._printer)
            case "\\d":
                show(self.session.ask("SHOW TABLES"), self._printer)
                show(self.session.ask("SHOW STREAMS"), self._printer)
            case "\\timing":
                self._timing = not self._timing
                say(f"timing is {'on' if self._timing else 'off'}")
            case "\\?" | "\\h" | "help":
                say(HELP)
            case "\\q" | "exit" | "quit":
                raise EOFError
            case _:
                raise Error(f"the command {word} is not known", hint=HELP)


def _converse(shell: Shell, state: Path | None) -> None:
    from millpond.cli.prompt import make_prompt

    prompt = make_prompt(shell.session, state)
    say(f"{HELP}\na statement ends with ;")
    with suppress(EOFError):
        while True:
            try:
                text = prompt()
            except KeyboardInterrupt:
                continue
            for statement in split_statements(text, unfinished=True):
                shell.run(statement)
