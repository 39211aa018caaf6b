"""Implements ``millpond demo``: runs the profit-and-loss app, fed by this process, from nothing to results."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.demo_trades import PIECE, make_trades
from millpond.cli.error_report import reporting, say
from millpond.cli.output import Format, Printer
from millpond.cli.progress import Loading
from millpond.cli.signals import Stopping
from millpond.errors import FileMissing

if TYPE_CHECKING:
    from millpond.app.app import App

EXAMPLES = """
Examples:

  millpond demo

  millpond demo --http 8080

  millpond demo --trades 200000

  millpond demo --kafka localhost:9092
"""

TRICKLE = (4, 25)
"""Sends per second, and trades per send."""


def demo(
    trades: Annotated[int, typer.Option(help="How many trades are sent.", min=1)] = 40_000,
    kafka: Annotated[
        str | None,
        typer.Option(help="Brokers: trades come from a topic there, results go to one.", metavar="HOST:PORT"),
    ] = None,
    http: Annotated[
        int | None,
        typer.Option(
            help="Show it in the browser, at this port of 127.0.0.1; trades continue until Ctrl-C. 0: a free port.",
            metavar="PORT",
            min=0,
            max=65535,
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Runs the profit-and-loss example: five sources, one query, a table of results. Takes half a minute."""
    if kafka is not None and http is not None:
        raise typer.BadParameter("it is for the demo without --kafka", param_hint="--http")
    with reporting("app.sql", verbose=verbose):
        example = find_example()
        os.environ["PNL_DATA"] = str(example / "data")
        if kafka is not None:
            from millpond.cli import demokafka

            say(f"the app: {_short(example / 'kafka.sql')}")
            demokafka.run(example, kafka, trades)
            say(_formatted_steps(demokafka.next_steps(*_as_typed(example / "kafka.sql"))))
            return
        from millpond.app.app import App

        say(f"the app: {_short(example / 'app.sql')}")
        loading = Loading()
        with (
            Stopping() as stopping,
            App(example / "app.sql", _on_progress=loading.report, _on_status=loading.status) as app,
            nullcontext() if http is None else app.serve(port=http) as server,
        ):
            loading.close()
            if server is not None:
                say(f"in the browser: {server.url}")
            _feed(app, trades)
            _show(app)
            if server is not None:
                _go_on(app, 1_000 + trades, server.url, stopping)
        say(_next_steps(example))


def find_example() -> Path:
    """Returns the files of the example: inside the package where it was installed, else in the repository."""
    package = Path(__file__).resolve().parent.parent
    for place in (package / "demo" / "pnl", package.parent / "examples" / "pnl"):
        if (place / "app.sql").exists():
            return place
    raise FileMissing("the files of the demo are not installed", hint="install millpond again")


def _feed(app: App, trades: int) -> None:
    """Sends the trades piece by piece, each when the one before has taken effect.

    A piece is as large as a batch that the engine evaluates in process, so the rates are not those of Spark jobs.
    """
    app.drain(math.inf)
    say(f"the first trades are in: pnl has {_rows(app)} rows")
    began = time.monotonic()
    for start in range(0, trades, PIECE):
        count = min(PIECE, trades - start)
        before = time.monotonic()
        app.send("trades", make_trades(1_000 + start, count))
        sent = time.monotonic()
        app.drain(math.inf)
        done = time.monotonic()
        say(
            f"{start + count:,} of {trades:,} trades: sent {count / (sent - before):,.0f}/s, "
            f"in the table {count / (done - before):,.0f}/s; pnl has {_rows(app)} rows"
        )
    took = time.monotonic() - began
    say(
        f"{trades:,} trades in pieces of {PIECE:,}, joined with three tables, checked by six subqueries "
        f"and stored in {took:.1f} s: {trades / took:,.0f} trades/s"
    )


def _go_on(app: App, first: int, url: str, stopping: Stopping) -> None:
    """Sends some trades per second, for people who watch."""
    say(f"trades continue; see them at {url}, Ctrl-C ends it")
    stopping.gently()
    while not stopping.asked.wait(1 / TRICKLE[0]):
        app.send("trades", make_trades(first, TRICKLE[1]))
        first += TRICKLE[1]


def _rows(app: App) -> str:
    found = app.sql("SELECT COUNT(*) AS n FROM pnl").rows()
    return f"{found[0]['n']:,}"


def _show(app: App) -> None:
    printer = Printer(Format.table)
    print("\nprofit by trader\n")
    printer.answer(
        app.sql("""
            SELECT trader, COUNT(*) AS trades, SUM(profit) AS profit,
                   COUNT_IF(cover = 'short') AS short, COUNT_IF(above_peers) AS above_peers
            FROM pnl GROUP BY trader ORDER BY profit DESC
        """).to_arrow()
    )
    print("the best trades\n")
    printer.answer(
        app.sql("""
            SELECT trade_id, trader, symbol, sector, quantity, price, profit, year_high, cover, trend
            FROM pnl ORDER BY profit DESC NULLS LAST, trade_id LIMIT 8
        """).to_arrow()
    )


def _next_steps(example: Path) -> str:
    file, data = _as_typed(example / "app.sql")
    return _formatted_steps(
        [
            ("millpond demo --http 8080", "shows it at work in the browser"),
            (f"{data}millpond run {file}", "runs the same app; Ctrl-C stops it"),
            ('millpond query "SELECT * FROM pnl"', "queries it, from another terminal"),
            (f"{data}millpond explain {file}", "shows how each statement runs"),
            ("millpond --help", "lists all commands"),
        ]
    )


def _as_typed(path: Path) -> tuple[str, str]:
    """Returns a file of the example, and what precedes it in a command that reads it."""
    file = shlex.quote(_short(path))
    is_here = file == f"examples/pnl/{path.name}"
    return file, "" if is_here else f"PNL_DATA={shlex.quote(_short(path.parent / 'data'))} "


def _formatted_steps(steps: list[tuple[str, str]]) -> str:
    if shutil.which("millpond") is None:
        steps.insert(0, (f". {_short(Path(sys.prefix))}/bin/activate", "puts millpond on your PATH"))
    width = max(len(command) for command, _ in steps)
    return "\n".join(["what to type next", *(f"  {command:{width}}  {what}" for command, what in steps)])


def _short(path: Path) -> str:
    """Returns the path as one would type it here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
