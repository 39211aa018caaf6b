"""Finds the names that a query reads."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.statements import Query


def names_read(query: Query) -> set[str]:
    """Returns the names in FROM anywhere in the query, in lower case, without its own CTEs."""
    ctes = {c.alias.lower() for c in query.expression.find_all(exp.CTE)}
    return {t.name.lower() for t in query.expression.find_all(exp.Table) if not t.meta.get("uri")} - ctes


def uris_read(query: Query) -> list[str]:
    """Returns the URIs in FROM anywhere in the query."""
    return [t.name for t in query.expression.find_all(exp.Table) if t.meta.get("uri")]
