"""Runs an app on both engines, and makes results of Spark too large."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from millpond import App
from millpond.engine import spark_stage, stage
from millpond.engine.collect import collect
from millpond.engine_rule import Engine
from millpond.errors import ResultTooLarge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def both(sql: str) -> Iterator[dict[Engine, App]]:
    """The same app on each engine."""
    with ExitStack() as stack:
        engines: tuple[Engine, ...] = ("process", "spark")
        yield {e: stack.enter_context(App(sql, engine=e, _direct=True)) for e in engines}


def too_large(monkeypatch: pytest.MonkeyPatch, number: int) -> list[DataFrame]:
    """Makes one result that is asked of Spark too large, by its number; returns all that are asked for."""
    asked: list[DataFrame] = []

    def once(frame: DataFrame) -> pa.Table:
        asked.append(frame)
        if len(asked) == number:
            raise ResultTooLarge("the result is larger than executors may pass to the driver at once")
        return collect(frame)

    for module in (spark_stage, stage):
        monkeypatch.setattr(module, "collect", once)
    return asked
