"""Finds the tables whose rows a batch can look up by keys, instead of reading them completely.

A table is looked up if every row that can matter has columns that equal something in the batch: in the condition of an
inner or left join, or in the WHERE of a subquery. Otherwise it is read completely.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.plan.plans import Lookup, TableInput
from millpond.sql.conjuncts import compared_alike, conjuncts
from millpond.sql.grouping import is_aggregated
from millpond.sql.render.spark import expression as spark_expression
from millpond.sql.resolve import Resolved
from millpond.sql.rewrite.context import is_filter
from millpond.sql.running_queries import from_items


def table_inputs(resolved: Resolved, select: exp.Expr, stream_alias: str | None) -> tuple[TableInput, ...]:
    """Returns the tables of a batch query in the order in which they can be fetched.

    ``select`` is the SELECT that has the stream in its FROM under ``stream_alias``; None if there is none.
    """
    tables = {i.view: i.relation.name for i in resolved.inputs if not i.relation.running}
    found: dict[str, Lookup] = {}
    if stream_alias is not None:
        _from_joins(select, stream_alias, tables, found)
        for node in _subqueries(select):
            _from_subquery(node, stream_alias, tables, found)
    ordered = [v for v in found] + [v for v in tables if v not in found]
    return tuple(TableInput(view, tables[view], found.get(view)) for view in ordered)


def _from_joins(select: exp.Expr, stream: str, tables: dict[str, str], found: dict[str, Lookup]) -> None:
    by_alias: dict[str, str] = {}
    for item, join in from_items(select):
        if not isinstance(item, exp.Table) or item.name not in tables:
            continue
        if item.args["alias"].args.get("columns"):
            continue
        side = (join.side or "").upper() if join is not None else ""
        if side in ("", "LEFT"):
            conditions = [join.args.get("on")] if join is not None else []
            where = select.args.get("where")
            if side == "" and where is not None:
                conditions.append(where.this)
            if join is None:
                conditions += [j.args.get("on") for j in select.args.get("joins") or () if not j.side]
            pairs = [p for c in conditions if c is not None for p in _equalities(c, item.alias)]
            lookup = _choose(pairs, stream, by_alias)
            if lookup is not None:
                found[item.name] = lookup
        if item.name in found:
            by_alias[item.alias.lower()] = item.name


def _from_subquery(node: exp.Expr, stream: str, tables: dict[str, str], found: dict[str, Lookup]) -> None:
    """Adds the lookup of a subquery on one table, correlated by equality, or `x IN (SELECT column …)` in a filter."""
    select = node
    if not isinstance(select, exp.Select) or select.args.get("joins") or select.args.get("with_"):
        return
    items = list(from_items(select))
    if len(items) != 1:
        return
    item = items[0][0]
    if not isinstance(item, exp.Table) or item.name not in tables or item.alias.lower() == stream.lower():
        return
    where = select.args.get("where")
    pairs = list(_equalities(where.this, item.alias)) if where is not None else []
    lookup = _choose(pairs, stream, {})
    if lookup is None:
        lookup = _in_lookup(select, item, stream)
    if lookup is not None:
        found[item.name] = lookup


def _in_lookup(select: exp.Select, item: exp.Table, stream: str) -> Lookup | None:
    holder = select.parent
    test = holder.parent if isinstance(holder, exp.Subquery) else holder
    if not isinstance(test, exp.In) or isinstance(test.parent, exp.Not) or not is_filter(test):
        return None
    if is_aggregated(select) or any(select.args.get(k) for k in ("limit", "offset", "distinct", "qualify")):
        return None
    element = select.expressions[0].unalias()
    if isinstance(element, exp.Column) and element.table.lower() == item.alias.lower():
        return _choose([(element, test.this)], stream, {})
    return None


def _choose(
    pairs: list[tuple[exp.Column, exp.Expr]], stream: str, looked_up: dict[str, str]
) -> Lookup | None:
    """Chooses a lookup from equalities that all take their values from one place."""
    by_place: dict[str | None, dict[str, str]] = {}
    fields: dict[str, str] = {}
    for column, value in pairs:
        aliases = {c.table.lower() for c in value.find_all(exp.Column)}
        if len(aliases) != 1 or value.find(exp.Subquery, exp.Select) or not compared_alike(column, value):
            continue
        alias = aliases.pop()
        if alias == stream.lower():
            by_place.setdefault(None, {}).setdefault(column.name, spark_expression(value))
            if isinstance(value, exp.Column):
                fields.setdefault(column.name, value.name)
        elif alias in looked_up and isinstance(value, exp.Column):
            by_place.setdefault(looked_up[alias], {}).setdefault(column.name, value.name)
    for place in (None, *[p for p in by_place if p is not None]):
        if place in by_place:
            keys = by_place[place]
            plain = tuple(fields[k] for k in keys) if place is None and keys.keys() <= fields.keys() else None
            return Lookup(tuple(keys), tuple(keys.values()), place, plain)
    return None


def _equalities(condition: exp.Expr, alias: str) -> Iterator[tuple[exp.Column, exp.Expr]]:
    """Finds ``alias.column = value`` among the conjuncts, the value from elsewhere."""
    for part in conjuncts(condition):
        if not isinstance(part, exp.EQ):
            continue
        for column, value in ((part.this, part.expression), (part.expression, part.this)):
            column, value = column.unnest(), value.unnest()
            if isinstance(column, exp.Column) and column.table.lower() == alias.lower():
                if all(c.table.lower() != alias.lower() for c in value.find_all(exp.Column)):
                    yield column, value


def _subqueries(select: exp.Expr) -> Iterator[exp.Expr]:
    for node in select.find_all(exp.Select):
        if node is not select and not isinstance(node.parent, exp.CTE):
            holder = node.parent
            if isinstance(holder, exp.Subquery) and isinstance(holder.parent, exp.From | exp.Join):
                continue
            yield node
