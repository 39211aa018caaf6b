"""Finds the names that a query reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from sqlglot import exp

from millpond.errors import Place
from millpond.sql import statements as st
from millpond.sql.statements import Query


def names_read(query: Query) -> set[str]:
    """Returns the names in FROM anywhere in the query, in lower case, without its own CTEs."""
    tables = (t for t in query.expression.find_all(exp.Table) if not t.meta.get("uri"))
    return {t.name.lower() for t in tables if not _is_cte(t)}


def _is_cte(table: exp.Table) -> bool:
    """Returns whether the name of a table is that of a CTE around it. A CTE does not read itself, nor later ones."""
    name, inside, node = table.name.lower(), None, table.parent
    while node is not None:
        if isinstance(node, exp.CTE):
            inside = node
        with_ = node if isinstance(node, exp.With) else node.args.get("with_") or node.args.get("with")
        if isinstance(with_, exp.With):
            known = with_.expressions
            if not with_.recursive and inside is not None and any(c is inside for c in known):
                known = known[: next(i for i, c in enumerate(known) if c is inside)]
            if any(c.alias.lower() == name for c in known):
                return True
            if not isinstance(node, exp.With):
                inside = None
        node = node.parent
    return False


def uris_read(query: Query) -> list[str]:
    """Returns the URIs in FROM anywhere in the query."""
    return [t.name for t in query.expression.find_all(exp.Table) if t.meta.get("uri")]


def targets_of(statement: st.Statement) -> set[str]:
    """Returns what a statement, or each of a block, changes."""
    inner = statement.statements if isinstance(statement, st.Block) else (statement,)
    return {s.target.lower() for s in inner if isinstance(s, st.WRITES)}


def names_used(statement: st.Statement) -> set[str]:
    """Returns the names that a statement uses, in lower case; names of its own common table expressions too."""
    named = {
        str(getattr(statement, field, None) or "").lower() for field in ("errors_into", "returning_into")
    }
    if isinstance(statement, st.CreateIndex):
        named.add(statement.table.lower())
    if isinstance(statement, st.AlterTable):
        named.add(statement.name.lower())
    return (named | targets_of(statement) | set(_named(statement))) - {""}


def _named(value: Any) -> Iterator[str]:
    if isinstance(value, exp.Expr):
        yield from (t.name.lower() for t in value.find_all(exp.Table))
    elif isinstance(value, tuple):
        for item in value:
            yield from _named(item)
    elif is_dataclass(value) and not isinstance(value, Place):
        for field in fields(value):
            yield from _named(getattr(value, field.name))
