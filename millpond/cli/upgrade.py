"""Implements ``millpond upgrade``: changes a state directory as a changed SQL file says, and ends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.confirmation import Agreeing
from millpond.cli.error_report import Report, reporting
from millpond.cli.sqlfile import read_sql
from millpond.errors import UnknownName

EXAMPLES = """
Examples:

  millpond upgrade app.sql --state ./state --dry-run

  millpond upgrade app.sql --state ./state

  millpond upgrade app.sql --state ./state --yes

  millpond upgrade app.sql --state ./state --shadow

Statements are compared by what they mean. Each is kept, altered, rebuilt, dropped, new or refused; --dry-run shows
which, also while the app runs, and changes nothing. What is rebuilt is read again when the app runs. A refused
statement refuses the file: nothing changes. millpond run does the same before it starts. With --shadow tables
that are rebuilt stay beside the old ones as TABLE$next, and TABLE$difference shows the rows that only one of both
has, until ALTER TABLE … SWAP WITH or DROP TABLE.

Exit code: 0 done or, with --dry-run, possible; 1 refused, not agreed to, or an error; 2 wrong usage.
"""


def upgrade(
    file: Annotated[Path, typer.Argument(help="The changed SQL file.", metavar="APP.SQL")],
    state: Annotated[Path, typer.Option(help="The state directory of the app.", metavar="DIR")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen, and change nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before something is dropped, rebuilt or run again.")
    ] = False,
    shadow: Annotated[
        bool,
        typer.Option("--shadow", help="Build what is rebuilt beside the old tables, and keep both."),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Changes the state of an app as its changed SQL file says, without running it."""
    with reporting(str(file), verbose=verbose) as report:
        from millpond.sql.text import Script

        report.mask = Script.of(read_sql(file)).mask
        if not state.is_dir():
            raise UnknownName(f'there is no state directory "{state}"', hint="millpond run creates one")
        if dry_run:
            _explain(file, state, report, shadow=shadow)
            return
        from millpond.app.app import App

        agree = Agreeing(report, yes=yes)
        with App(file, state=state, _defer=True, shadow=shadow, _on_upgrade=agree):
            pass
        report.note("done")


def _explain(file: Path, state: Path, report: Report, *, shadow: bool) -> None:
    """Prints what an upgrade would do, by the running app or from its state."""
    from millpond.cli.sessions import open_session
    from millpond.upgrade.decisions import decisions_in

    quoted = str(file.absolute()).replace("'", "''")
    with open_session(state) as session:
        answer = session.ask(f"EXPLAIN {'SHADOW ' if shadow else ''}UPGRADE '{quoted}'")
        decisions = [d for table in answer.tables for d in decisions_in(table)]
    for decision in decisions:
        print(report.mask(decision.line()))
    if any(d.action == "refused" for d in decisions):
        raise typer.Exit(1)
