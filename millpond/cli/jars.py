"""Implements ``millpond jars``: downloads what Spark needs in addition to PySpark."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from millpond.cli.error_report import reporting, say
from millpond.extensions import modules_of

_NAMES = sorted(modules_of("spark"))
EXAMPLES = f"""
Examples:

  millpond jars {_NAMES[0]}
"""


Connector = StrEnum("Connector", _NAMES)  # type: ignore[misc]  # the names are found, not written here


def jars(
    connector: Annotated[Connector, typer.Argument(help="What Spark is to read and write.")],
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Fetches the jars of a connector, once, with Maven. MILLPOND_JARS names another folder for them."""
    with reporting(connector.value, verbose=verbose):
        from millpond.connectors.spark import spark_formats
        from millpond.engine.jars import fetch, folder, jars_of

        kind = spark_formats()[connector.value]
        if not jars_of(kind):
            say(f"fetching {', '.join(kind.jars)}")
            fetch(kind.jars, folder(), alone=True)
        for jar in jars_of(kind):
            print(jar)
