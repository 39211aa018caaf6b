"""Implements ``millpond adopt``: lets an app go on where a Structured Streaming job has ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.error_report import reporting
from millpond.cli.sqlfile import read_sql

if TYPE_CHECKING:
    from millpond.upgrade.decisions import Decision

EXAMPLES = """
Examples:

  millpond adopt --checkpoint /jobs/orders --table lake/orders app.sql --state ./state --dry-run

  millpond adopt --checkpoint /jobs/orders --table lake/orders app.sql --state ./state

  millpond run app.sql --state ./state

The job has one source, a topic or files, no state, and writes to a Delta table; end it first. The app has one INSERT
… SELECT that reads the same source and writes to the same table. Its first position becomes the end of the last
batch of the job. A batch that the job has not finished is repeated by an upsert; for appended rows the Delta table
says whether it has them, if the job writes with format("delta") or sets txnAppId. If it does not say so, --skip-last
or --repeat-last has to. --dry-run shows what was found, and changes nothing.

Exit code: 0 done or, with --dry-run, possible; 1 refused, or an error; 2 wrong usage.
"""


def adopt(
    file: Annotated[Path, typer.Argument(help="The SQL file of the app.", metavar="APP.SQL")],
    checkpoint: Annotated[Path, typer.Option(help="The checkpoint folder of the job.", metavar="DIR")],
    table: Annotated[str, typer.Option(help="The Delta table that the job writes to.", metavar="PATH")],
    state: Annotated[Path, typer.Option(help="The state directory of the app.", metavar="DIR")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what was found, and change nothing.")
    ] = False,
    txn_app_id: Annotated[
        str | None,
        typer.Option(help="The 'txnAppId' with which the job writes, if it sets one.", metavar="ID"),
    ] = None,
    repeat_last: Annotated[
        bool, typer.Option("--repeat-last", help="The table does not have the unfinished batch: repeat it.")
    ] = False,
    skip_last: Annotated[
        bool, typer.Option("--skip-last", help="The table has the unfinished batch: begin after it.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Lets an app go on where a Structured Streaming job has ended, into the same Delta table."""
    if repeat_last and skip_last:
        raise typer.BadParameter("only one of both", param_hint="--repeat-last, --skip-last")
    with reporting(str(file), verbose=verbose) as report:
        from millpond.sql.text import Script

        text = read_sql(file)
        report.mask = Script.of(text).mask
        from millpond.app.adoption import Unclear, find_adoption
        from millpond.app.adoption_checks import check_begun, check_not_begun
        from millpond.app.app import App

        unclear: Unclear = "repeat" if repeat_last else "skip" if skip_last else None
        found = find_adoption(text, checkpoint, table, txn_app_id, unclear)
        check_not_begun(state, found)
        for line in found.lines:
            print(report.mask(line))
        if dry_run:
            return
        with App(file, state=state, _defer=True, _on_upgrade=_refuse, _adopted=found.begins) as app:
            check_begun(app, found)
        report.note(f"done: millpond run {file} --state {state} goes on")


def _refuse(decisions: Sequence[Decision]) -> None:
    """Raises an error if a changed file would drop or rebuild something."""
    from millpond.upgrade.decisions import raise_unasked

    raise_unasked(decisions, "run millpond upgrade first, with the file as it was without this statement")
