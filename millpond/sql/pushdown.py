"""Finds what a query requires of each of its inputs, so that a database or a table's backend can search for it.

What is found here is true for every row for which the condition is true; the rest of the condition is evaluated
afterwards. Only comparisons that mean the same everywhere are used: those of a column with a constant of its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.predicates import All, Any_, Compare, Given, Need, OneOf, Predicate
from millpond.records.values import Unfit
from millpond.sql.bind import OPEN
from millpond.sql.grouping import contains_window, is_aggregated
from millpond.sql.notes import notes_of
from millpond.sql.predicates import PredicateReader, Reading, columns_of_table, constant, number_in, time_in
from millpond.sql.resolve import Input, Resolved
from millpond.sql.running_queries import from_items
from millpond.types import Column


def filled(predicate: Predicate, values: Sequence[Any]) -> Predicate | None:
    """Returns the condition with the values supplied at run time; None if one of them does not fit."""
    try:
        return _filled(predicate, values)
    except Unfit:
        return None


def _filled(predicate: Predicate, values: Sequence[Any]) -> Predicate:
    match predicate:
        case Compare(column, operator, Given() as given):
            return Compare(column, operator, given.value(values))
        case OneOf(column, listed, negated):
            came = tuple(v.value(values) if isinstance(v, Given) else v for v in listed)
            return OneOf(column, came, negated)
        case All(parts) | Any_(parts):
            return type(predicate)(tuple(_filled(part, values) for part in parts))
    return predicate


def pushed(resolved: Resolved) -> dict[str, Predicate]:
    """Returns view → what a query requires of the table behind it, whatever else it does with its rows."""
    return {view: r.predicate for view, r in _readings(resolved).items() if r.predicate is not None}


def _readings(resolved: Resolved) -> dict[str, Reading]:
    select = resolved.expression
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    if where is None or select.args.get("laterals"):
        return {}
    items = list(from_items(select))
    found: dict[str, Reading] = {}
    for at, (item, join) in enumerate(items):
        if not isinstance(item, exp.Table) or _may_be_missing(join, [j for _, j in items[at + 1 :]]):
            continue
        source = resolved.input(item.name)
        uses = sum(t.name == item.name for t in select.find_all(exp.Table))
        names = item.args.get("alias")
        if source is None or uses != 1 or (names is not None and names.args.get("columns")):
            continue
        columns = columns_of_table(source.relation.schema, item.alias_or_name)
        found[source.view] = PredicateReader(columns, _value).read(where.this)
    return found


def need_of(resolved: Resolved, source: Input) -> Need:
    """Returns what the query needs of one of its inputs. There is no limit if only part of its condition is
    found here.
    """
    found, limit = _readings(resolved).get(source.view), _limit(resolved)
    if resolved.expression.args.get("where") is not None and (found is None or not found.whole):
        limit = None
    return Need(_columns(resolved, source), None if found is None else found.predicate, limit)


def _columns(resolved: Resolved, source: Input) -> tuple[str, ...] | None:
    """Returns the columns of an input that are named anywhere; None for all, or if that is unknown."""
    tables = [t for t in resolved.expression.find_all(exp.Table) if t.name == source.view]
    aliases = [t.args.get("alias") for t in tables]
    if len(tables) != 1 or any(a is not None and a.args.get("columns") for a in aliases):
        return None
    read = set[str]()
    for node in resolved.expression.find_all(exp.Column):
        if isinstance(node.this, exp.Star):
            return None
        if not node.table or node.table.lower() == source.alias.lower() or node.table == source.view:
            read.add(node.name.lower())
    names = tuple(c.name for c in source.relation.schema if c.name.lower() in read)
    return None if len(names) == len(source.relation.schema) else names


def _limit(resolved: Resolved) -> int | None:
    """Returns how many rows of its one input a query takes, if any rows will do."""
    select = resolved.expression
    if not isinstance(select, exp.Select):
        return None
    limit = select.args.get("limit")
    others = ("group", "having", "order", "distinct", "offset", "qualify", "joins", "laterals")
    if (
        limit is None
        or not isinstance(limit.expression, exp.Literal)
        or any(select.args.get(k) for k in others)
    ):
        return None
    alone = len(resolved.inputs) == 1 and not is_aggregated(select)
    if (
        not alone
        or any(contains_window(p) for p in select.expressions)
        or select.find(exp.UDTF, exp.Subquery)
    ):
        return None
    return int(limit.expression.name) if limit.expression.is_int else None


def _may_be_missing(own: exp.Join | None, later: list[exp.Join | None]) -> bool:
    """Returns whether a join may return rows with NULL for this input, so that WHERE does not concern only its rows."""
    sides = [(j.side or "").upper() for j in later if j is not None]
    if own is not None and (
        (own.side or "").upper() in ("LEFT", "FULL") or (own.kind or "").upper() in ("SEMI", "ANTI")
    ):
        return True
    return "RIGHT" in sides or "FULL" in sides


def _value(node: exp.Expr, column: Column) -> Any:
    """Returns the constant that a column is compared with, or the placeholder of a value supplied at run time."""
    value = constant(node, column)
    return None if value is None else _open(node, column) or value


def _open(node: exp.Expr, column: Column) -> Given | None:
    """Returns the placeholder of a value supplied at run time, if the node is one."""
    negative = False
    while True:
        at = notes_of(node).get(OPEN)
        if at is not None:
            return Given(at, None, partial(_in_type, dtype=column.type, negative=negative))
        if not isinstance(node, exp.Paren | exp.Neg):
            return None
        negative ^= isinstance(node, exp.Neg)
        node = node.this


def _in_type(value: Any, dtype: pa.DataType, *, negative: bool) -> Any:
    """Returns the value in the type. Raises Unfit if the comparison cannot be pushed down with it."""
    if isinstance(value, str):
        return value
    if isinstance(value, date):
        found = time_in(value.isoformat(), dtype)
    else:
        value = -value if negative else value
        found = number_in(f"{value:f}" if isinstance(value, Decimal) else str(value), dtype)
    if found is None:
        raise Unfit("a value of another form")
    return found
