"""Implements ``millpond query``: runs one text, prints its result, and ends."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.error_report import reporting
from millpond.cli.output import Format, Printer

if TYPE_CHECKING:
    from millpond.cli.client import Answer

EXAMPLES = """
Examples:

  millpond query "SELECT * FROM prices WHERE symbol = 'ACME'"

  millpond query "SELECT COUNT(*) AS n FROM prices" --state ./state --format json

  millpond query "INSERT INTO trades VALUES (1, 'ACME', 100)" --state ./state

  millpond query "SELECT * FROM file:///data/prices.csv LIMIT 5"

It connects to the app that runs on the state directory or, if none does, reads the directory itself.
Without --state it reads from the one app that you are running, and names it. A query on a stream prints rows until
Ctrl-C.

Exit code: 0 answered, 1 an error, 2 wrong usage.
"""


def query(
    sql: Annotated[str, typer.Argument(help="One or several statements.", metavar="SQL")],
    state: Annotated[Path | None, typer.Option(help="The state directory of the app.", metavar="DIR")] = None,
    format: Annotated[Format, typer.Option(help="How rows are written.")] = Format.table,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Queries the tables of an app, running or not."""
    with reporting("query", verbose=verbose):
        from millpond.cli.sessions import open_session

        printer = Printer(format)
        with open_session(state) as session:
            show(session.ask(sql), printer)


def show(answer: Answer, printer: Printer) -> None:
    """Prints a result; the rows of a running query until it ends or Ctrl-C is pressed."""
    import pyarrow as pa

    if answer.count is not None:
        printer.count(answer.count)
    elif answer.running:
        with closing(answer.tables) as tables:  # type: ignore[type-var]
            for rows in tables:
                printer.live("query", rows)
    else:
        printer.answer(pa.concat_tables(list(answer.tables)))
