"""Implements ``millpond tables``: lists what an app stores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.error_report import reporting
from millpond.cli.output import Format, Printer
from millpond.cli.query import show

EXAMPLES = """
Examples:

  millpond tables

  millpond tables --state ./state --format json

It connects to the app that runs on the state directory or, if none does, reads the directory itself.
Without --state it uses the one app that you are running.
"""


def tables(
    state: Annotated[Path | None, typer.Option(help="The state directory of the app.", metavar="DIR")] = None,
    format: Annotated[Format, typer.Option(help="How rows are written.")] = Format.table,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Lists the tables of an app: rows, columns, source and health."""
    with reporting("tables", verbose=verbose):
        from millpond.cli.sessions import open_session

        with open_session(state) as session:
            show(session.ask("SHOW TABLES"), Printer(format))
