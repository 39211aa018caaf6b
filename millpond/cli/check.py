"""Implements ``millpond check``: reports every mistake of a SQL file, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.error_report import render, render_warning, reporting, say
from millpond.cli.sqlfile import read_sql
from millpond.engine_rule import Engine

EXAMPLES = """
Examples:

  millpond check app.sql

  millpond check app.sql && millpond run app.sql

  millpond check app.sql --engine process

Exit code: 0 no mistake, 1 mistakes, 2 wrong usage.
"""


def check(
    file: Annotated[Path, typer.Argument(help="The SQL file.", metavar="APP.SQL")],
    engine: Annotated[
        Engine,
        typer.Option(help="The engine that the app will run with: auto, spark or process.", metavar="ENGINE"),
    ] = "auto",
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Finds every mistake in a SQL file: names, types, options. Spark is not started, nothing is run."""
    with reporting(str(file), verbose=verbose):
        text = read_sql(file)
        from millpond.app.check import check_text

        found = check_text(text, engine=engine)
        for warning in found.warnings:
            say(render_warning(warning, str(file)) + "\n")
        for note in found.notes:
            say(render_warning(note, str(file), "note") + "\n")
        if found.errors:
            say("\n\n".join(render(error, str(file)) for error in found.errors))
            say(f"\n{_many(len(found.errors), 'error')}")
            raise typer.Exit(1)
        noted = f", {_many(len(found.warnings), 'warning')}" if found.warnings else ""
        print(f"ok: {_many(len(found.statements), 'statement')}{noted}")


def _many(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
