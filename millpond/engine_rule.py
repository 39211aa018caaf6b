"""Decides which engine evaluates a batch: this process, or Spark's executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Engine = Literal["auto", "spark", "process"]
ENGINES = ("process", "spark")
"""Which evaluate batches."""
SMALL_ROWS = 10_000
SMALL_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class EngineRule:
    """Says which engine evaluates the batches of a statement. With ``auto`` a batch of at most ``rows`` rows and
    ``bytes`` bytes is evaluated in process, where a Spark job would cost more than the work, and a larger one by Spark.
    The rule is the same on every master. Without an ``engine`` the app's setting applies.
    """

    engine: Engine | None = None
    rows: int = SMALL_ROWS
    bytes: int = SMALL_BYTES

    def in_app(self, engine: Engine) -> EngineRule:
        """Returns the rule in an app with that setting."""
        return self if self.engine is not None else replace(self, engine=engine)

    def in_process(self, rows: float, size: int | None) -> bool:
        """Returns whether a batch of that size is evaluated in process; ``size`` is in bytes, if known."""
        if self.engine != "auto":
            return self.engine == "process"
        return rows <= self.rows and (size is None or size <= self.bytes)

    def __str__(self) -> str:
        if self.engine == "auto":
            return f"in process up to {self.rows:,} rows and {self.bytes / 2**20:,.0f} MB, else by Spark"
        return "in process (engine = process)" if self.engine == "process" else "by Spark (engine = spark)"


BY_APP = EngineRule()


def rule_of(options: Mapping[str, Any]) -> EngineRule:
    """Returns the rule that the options of a statement make."""
    return EngineRule(
        options.get("engine"),
        options.get("process.max.rows", SMALL_ROWS),
        options.get("process.max.bytes", SMALL_BYTES),
    )
