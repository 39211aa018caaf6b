"""Implements ``millpond test``: runs cases of SQL apps, from files."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.error_report import render, reporting, say
from millpond.errors import Error

EXAMPLES = """
Examples:

  millpond test tests/

  millpond test orders.test --case "a gold customer gets a discount"

  millpond test orders.test --cuts 5 --restart

A case has an app, rows that come in, and rows that are expected; docs/testing.md has the form. Nothing is started but
what the SQL needs: statements get their rows directly, in this process.

Exit code: 0 all passed, 1 some failed or a file has a mistake, 2 wrong usage.
"""


def test(
    paths: Annotated[list[Path], typer.Argument(help="Files or directories of .test files.", metavar="PATH")],
    case: Annotated[
        str | None, typer.Option(help="Only cases whose name has this in it.", metavar="TEXT")
    ] = None,
    cuts: Annotated[
        int, typer.Option(help="Send the rows of each step in up to so many batches.", min=1, metavar="N")
    ] = 1,
    restart: Annotated[
        bool, typer.Option("--restart", help="Also cut the app off in the middle, and start it again. Slow.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Runs the cases of .test files."""
    files = list(_files(paths))
    with reporting("test", verbose=verbose):
        from millpond.testing import CaseFailed, Mode, read_cases, run_case

        passed = failed = 0
        for path in files:
            try:
                cases = read_cases(path)
            except Error as error:
                say(render(error, str(path)))
                failed += 1
                continue
            for one in cases:
                if case is not None and case.lower() not in one.name.lower():
                    continue
                modes: list[Mode] = ["plain", "restart"] if restart else ["plain"]
                began = time.monotonic()
                try:
                    for mode in modes:
                        for count in range(1, cuts + 1):
                            with tempfile.TemporaryDirectory(prefix="millpond-test-") as scratch:
                                run_case(one, mode, Path(scratch), cuts=count)
                except (CaseFailed, Error) as error:
                    failed += 1
                    said = render(error) if isinstance(error, Error) else str(error)
                    print(f"FAILED  {path}:{one.line}  {one.name}\n{_indented(said)}", flush=True)
                    continue
                passed += 1
                print(f"ok      {path}:{one.line}  {one.name}  {time.monotonic() - began:.1f} s", flush=True)
        sys.stdout.flush()
        say(f"{passed} passed, {failed} failed")
        if failed or not passed:
            raise typer.Exit(1)


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.rglob("*.test"))
        elif path.is_file():
            yield path
        else:
            raise typer.BadParameter(f'there is no file or directory "{path}"')


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())
