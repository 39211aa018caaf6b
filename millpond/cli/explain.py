"""``millpond explain``: the plan of every statement of a SQL file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.reporting import render, reporting, say
from millpond.cli.sqlfile import read_sql

EXAMPLES = """
Examples:

  millpond explain app.sql
"""


def explain(
    file: Annotated[Path, typer.Argument(help="The SQL file.", metavar="APP.SQL")],
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Shows how each statement would run: who evaluates it, what it reads, what it guarantees."""
    with reporting(str(file), verbose=verbose):
        text = read_sql(file)
        from millpond.app.check import check_text, explain_text

        found = check_text(text)
        if found.errors:
            say("\n\n".join(render(error, str(file)) for error in found.errors))
            raise typer.Exit(1)
        for statement, lines in explain_text(found):
            place = f"{file}:{statement.place.line}" if statement.place else str(file)
            print(f"{place}  {lines[0]}")
            for line in lines[1:]:
                print(f"    {line}")
