"""The rows of a running SELECT for someone who reads along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.query.result import RunningResult

if TYPE_CHECKING:
    from millpond.app.app import App

PAUSE = 0.1
"""Seconds between two looks at whether the reader is still there."""


def follow(app: App, result: RunningResult, gone: Callable[[], bool]) -> Iterator[pa.Table]:
    """The rows as they come, until ``gone`` says so; then the query ends. Raises the error it failed with."""
    try:
        while not gone():
            rows = result.take(PAUSE)
            if rows is not None:
                yield rows
                continue
            query = app._views.get(result.name) or app._pipelines.get(result.name)
            if query is None:
                return
            query.check()
    finally:
        app._cancel(result)
