"""Asks the person before an upgrade drops or rebuilds something."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from millpond.cli.error_report import Report

if TYPE_CHECKING:
    from millpond.upgrade.decisions import Decision

_HINT = "--yes does it without asking; millpond upgrade APP.SQL --state DIR --dry-run shows it"


class Agreeing:
    """Shows what an upgrade does. It asks where something is dropped, rebuilt or run again, unless ``yes``; where
    nobody can answer, it raises an error.
    """

    def __init__(self, report: Report, *, yes: bool):
        self._report = report
        self._yes = yes

    def __call__(self, decisions: Sequence[Decision]) -> None:
        from millpond.upgrade.decisions import raise_unasked

        changed = [d for d in decisions if d.action != "kept"]
        self._report.note("the file has changed:\n" + "\n".join(f"  {d.line()}" for d in changed))
        if self._yes or not any(d.asks for d in decisions):
            return
        if not sys.stdin.isatty():
            raise_unasked(decisions, _HINT)
        if not typer.confirm("Do this?", default=False, err=True):
            self._report.note("nothing has changed")
            raise typer.Exit(1)
