"""Finds the columns that a query reads of its inputs, so that no others are read from tables."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from millpond.sql.resolve import Resolved


def columns_read(query: Resolved) -> Mapping[str, list[str] | None]:
    """Returns the columns of each input, by its view; None stands for all. At least one: rows are counted by it."""
    tree = query.expression
    if any(join.args.get("method") for join in tree.find_all(exp.Join)):
        return {i.view: None for i in query.inputs}
    by_alias: dict[str, set[str]] = {}
    for column in tree.find_all(exp.Column):
        by_alias.setdefault(column.table.lower(), set()).add(column.name.lower())
    everywhere = by_alias.get("", set())
    for join in tree.find_all(exp.Join):
        everywhere |= {c.name.lower() for c in join.args.get("using") or ()}
    aliases: dict[str, set[str]] = {}
    for table in tree.find_all(exp.Table):
        aliases.setdefault(table.name, set()).add(table.alias_or_name.lower())
    found: dict[str, list[str] | None] = {}
    for i in query.inputs:
        names = everywhere.union(*(by_alias.get(alias, ()) for alias in aliases.get(i.view, ())))
        schema = i.relation.schema
        found[i.view] = [n for n in schema.names if n.lower() in names] or list(schema.names)[:1]
    return found
