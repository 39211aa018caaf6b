"""Hands the rows of running SELECTs to their readers."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from millpond.query.result import RunningResult

OnEmit = Callable[[str, pa.Table], None]
"""Is handed the rows of a query by its name."""


class Emitted:
    """Keeps the results that programs read, by the names of their queries. With ``printed`` the rows of statements
    that go on after a restart are handed to it instead."""

    def __init__(self, printed: OnEmit | None = None):
        self.printed = printed
        self.results: dict[str, RunningResult] = {}

    def open(self, query: str, schema: pa.Schema) -> RunningResult:
        """Returns the result of a query that is about to run."""
        result = self.results[query] = RunningResult(schema, query)
        return result

    def add(self, query: str, rows: pa.Table, *, ephemeral: bool) -> None:
        """Hands rows of a query to whoever reads along."""
        if ephemeral or self.printed is None:
            self.results[query].add(rows)
        elif rows.num_rows:
            self.printed(query, rows)
