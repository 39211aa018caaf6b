"""Implements ``millpond top``: shows the queries and tables of a running app, as they change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.error_report import reporting

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

    from millpond.cli.sessions import Session

EXAMPLES = """
Examples:

  millpond top

  millpond top --state ./state --interval 5

  millpond top --once

It connects to the app that runs on the state directory, or to the one app that you are running. Ctrl-C exits.
"""
_COLOURS = {
    "running": "green",
    "healthy": "green",
    "static": "green",
    "starting": "yellow",
    "waiting": "yellow",
    "loading": "yellow",
    "retrying": "yellow",
    "paused": "yellow",
    "stopped": "yellow",
    "stale": "red",
    "failed": "red",
    "disconnected": "red",
    "missing": "red",
}


def top(
    state: Annotated[Path | None, typer.Option(help="The state directory of the app.", metavar="DIR")] = None,
    interval: Annotated[
        float, typer.Option(help="Seconds between two updates.", metavar="SECONDS", min=0.1)
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show once, then exit.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Shows the queries and tables of an app, and updates the display."""
    with reporting("top", verbose=verbose):
        from rich.console import Console

        from millpond.cli.sessions import open_session

        console = Console()
        with open_session(state) as session:
            before: dict[str, tuple[float, int]] = {}
            with suppress(KeyboardInterrupt), _screen(console, once) as show:
                show(view(session, before))
                while not once:
                    time.sleep(interval)
                    show(view(session, before))


@contextmanager
def _screen(console: Console, once: bool) -> Iterator[Callable[[Group], None]]:
    """Shows one view instead of the other on a terminal, else one after the other."""
    if once or not console.is_terminal:
        yield console.print
        return
    from rich.live import Live

    with Live(console=console, auto_refresh=False, screen=True) as live:
        yield lambda group: live.update(group, refresh=True)


def view(session: Session, before: dict[str, tuple[float, int]]) -> Group:
    """Returns the current view; ``before`` has the rows of the last one, from which rates are computed."""
    from rich.console import Group

    return Group(_queries(_rows(session, "SHOW QUERIES")), _tables(_rows(session, "SHOW TABLES"), before))


def _rows(session: Session, sql: str) -> list[dict[str, Any]]:
    return [row for table in session.ask(sql).tables for row in table.to_pylist()]


def _queries(rows: list[dict[str, Any]]) -> Table:
    table = _grid("queries", ("query", "state", "rows", "rows/s", "lag", "batch ms", "errors", "error"))
    for row in rows:
        numbers = (row["rows"], row["rate"], row["lag"], row["last_batch_ms"], row["errors"])
        table.add_row(row["name"], _state(row["state"]), *map(_number, numbers), _short(row["error"]))
    return table


def _tables(rows: list[dict[str, Any]], before: dict[str, tuple[float, int]]) -> Table:
    table = _grid("tables", ("table", "health", "rows", "rows/s", "from", "key", "reason"))
    now = time.monotonic()
    for row in rows:
        count = row["rows"] or 0
        then, known = before.get(row["name"], (now, count))
        rate = (count - known) / (now - then) if now > then else None
        before[row["name"]] = (now, count)
        status, _, reason = (row["health"] or "").partition(": ")
        table.add_row(
            row["name"],
            _state(status),
            _number(count),
            _number(rate),
            row["source"],
            row["primary_key"],
            _short(reason),
        )
    return table


def _grid(title: str, columns: tuple[str, ...]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", expand=True)
    for name in columns:
        right = name in ("rows", "rows/s", "lag", "batch ms", "errors")
        table.add_column(name, justify="right" if right else "left", no_wrap=name not in ("error", "reason"))
    return table


def _state(state: str) -> str:
    colour = _COLOURS.get(state)
    return f"[{colour}]{state}[/]" if colour else state


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _short(text: str | None) -> str:
    from rich.markup import escape

    first = (text or "").partition("\n")[0]
    return escape(first if len(first) <= 80 else first[:79] + "…")
