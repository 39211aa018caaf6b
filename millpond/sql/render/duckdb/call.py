"""Represents a call of an aggregate or window function, before FILTER and OVER are added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from millpond.sql.render.duckdb.expression import Expressions


@dataclass(frozen=True)
class Call:
    """Represents a call such as ``sum(x)``; FILTER and OVER go between it and the expression over its value.

    Several calls (``sum(x)`` and ``count(x)``) may be part of one value.
    """

    calls: tuple[str, ...]
    finish: Callable[..., str] = field(default=lambda *values: values[0])
    filters: tuple[str, ...] = ()

    def ignoring_nulls(self) -> Call:
        return replace(self, calls=tuple(f"{call[:-1]} IGNORE NULLS)" for call in self.calls))

    def sql(self, filters: tuple[str, ...] = (), over: str = "") -> str:
        conditions = " AND ".join(f"({f})" for f in (*self.filters, *filters))
        tail = (f" FILTER (WHERE {conditions})" if conditions else "") + over
        return self.finish(*(call + tail for call in self.calls))


Aggregate = Callable[[Expressions, exp.Expr], Call]
