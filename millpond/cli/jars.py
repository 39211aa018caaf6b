"""Implements ``millpond jars``: downloads what Spark needs in addition to PySpark."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from millpond.cli.reporting import reporting, say

EXAMPLES = """
Examples:

  millpond jars kafka
"""


class Connector(StrEnum):
    kafka = "kafka"


def jars(
    connector: Annotated[Connector, typer.Argument(help="What Spark is to read and write.")],
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Fetches the jars of a connector, once, with Maven. MILLPOND_JARS names another folder for them."""
    with reporting(connector.value, verbose=verbose):
        from millpond.engine.jars import KAFKA, fetch, folder, kafka_jars

        if not kafka_jars():
            say(f"fetching {', '.join(KAFKA)}")
            fetch(KAFKA, folder(), alone=True)
        for jar in kafka_jars():
            print(jar)
