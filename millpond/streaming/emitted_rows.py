"""Passes the rows of running SELECTs to their readers."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from millpond.query.result import RunningResult

OnEmit = Callable[[str, pa.Table], None]
"""Receives the rows of a query by its name."""


class Emitted:
    """Stores the results that programs read, by the names of their queries. With ``printed`` the rows of statements
    that continue after a restart are passed to it instead.
    """

    def __init__(self, printed: OnEmit | None = None):
        self.printed = printed
        self.results: dict[str, RunningResult] = {}

    def open(self, query: str, schema: pa.Schema) -> RunningResult:
        """Returns the result of a query that is about to run."""
        result = self.results[query] = RunningResult(schema, query)
        return result

    def add(self, query: str, rows: pa.Table, *, ephemeral: bool) -> None:
        """Passes rows of a query to its readers."""
        if ephemeral or self.printed is None:
            self.results[query].add(rows)
        elif rows.num_rows:
            self.printed(query, rows)
