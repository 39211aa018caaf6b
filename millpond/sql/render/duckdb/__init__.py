"""Renders DuckDB SQL with Spark's (ANSI) meaning.

Each supported operator, function and clause has an entry; for anything else ``render`` raises Unrenderable, and Spark
runs the query. The invariant of every entry: its SQL has, in DuckDB, exactly the type of ``type_of``.
"""

from __future__ import annotations

from sqlglot import exp, parse_one

from millpond.sql.render.duckdb.errors import explain_error
from millpond.sql.render.duckdb.names import NOW, Unrenderable, duck, quoted, text
from millpond.sql.render.duckdb.query import Queries

__all__ = [
    "NOW",
    "SETTINGS",
    "Unrenderable",
    "duck",
    "explain_error",
    "quoted",
    "render",
    "text",
    "times_read",
]

SETTINGS: tuple[str, ...] = (
    "SET TimeZone = 'UTC'",
    "SET ieee_floating_point_ops = false",
    "SET error_on_division_by_zero = true",
    "SET scalar_subquery_error_on_multiple_rows = true",
    "SET preserve_insertion_order = true",
    "SET order_by_non_integer_literal = true",
    "SET disabled_optimizers = 'common_subexpressions'",
)
"""The settings that a connection needs for the rendered SQL to mean what Spark means.

Common subexpressions would be moved out of COALESCE and TRY, and raise for rows that those protect.
"""


def render(query: exp.Expr) -> str:
    """Returns DuckDB SQL for a resolved query, whose result has Spark's rows and types.

    Raises Unrenderable if there is no exact form, TypeMismatch for operands that make no sense.
    """
    return Queries().query(query)


def times_read(sql: str, view: str) -> int:
    """Returns how often a rendered query scans an input."""
    return [t.name for t in parse_one(sql, dialect="duckdb").find_all(exp.Table)].count(view)
