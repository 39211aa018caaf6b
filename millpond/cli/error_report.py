"""Reports errors of commands: a message with its place, line, caret and hint on standard error, and the exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from millpond.errors import Caution, Error

INTERRUPTED = 128 + signal.SIGINT


class Report:
    """Prints a command's errors. ``name`` is the file that they are reported in, ``mask`` hides secrets."""

    def __init__(self, name: str | None = None, *, verbose: bool = False):
        self.name = name
        self.verbose = verbose
        self.mask: Callable[[str], str] = lambda text: text

    def error(self, error: BaseException) -> None:
        if isinstance(error, Error):
            text = render(error, self.name)
        else:
            text = f"internal error: {type(error).__name__}: {error}"
            if not self.verbose:
                text += "\nhint: --verbose shows where; please report it"
        if self.verbose:
            text = "".join(traceback.format_exception(error)) + text
        say(self.mask(text))

    def note(self, text: str) -> None:
        say(self.mask(text))


def render(error: Error, name: str | None = None) -> str:
    """Formats ``app.sql:3:8: message``, the line with a caret, the hint; one block for each of several errors."""
    several = getattr(error, "errors", None)
    if several:
        return "\n\n".join(render(e, name) for e in several)
    lines = [f"error: {error.message}"]
    if error.place is not None:
        lines = [f"{name or 'sql'}:{error.place.line}:{error.place.column}: {error.message}"]
        lines += ["  " + line for line in error.place.caret().splitlines()]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    return "\n".join(lines)


def render_warning(warning: Caution, name: str, kind: str = "warning") -> str:
    """Formats a warning or a note like an error, but for something that can run."""
    lines = [f"{kind}: {warning.message}"]
    if warning.place is not None:
        lines = [f"{name}:{warning.place.line}:{warning.place.column}: {lines[0]}"]
        lines += ["  " + line for line in warning.place.caret().splitlines()]
    return "\n".join([*lines, f"hint: {warning.hint}"])


def say(text: str) -> None:
    """Prints a line for people on standard error, so that standard output contains only rows."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextmanager
def reporting(name: str | None = None, *, verbose: bool = False) -> Iterator[Report]:
    """Turns exceptions of a command into messages and exit codes: 1 for an error, 130 for Ctrl-C."""
    report = Report(name, verbose=verbose)
    try:
        yield report
        sys.stdout.flush()
    except typer.Exit:
        raise
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        say("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        report.error(error)
        raise typer.Exit(1) from None
