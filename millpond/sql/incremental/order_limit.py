"""Builds the operator of ORDER BY … LIMIT."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.sql.aggregate.find import aggregates
from millpond.sql.aggregate.nodes import named
from millpond.sql.conjuncts import outer_columns
from millpond.sql.grouping import grouping_keys, is_aggregated
from millpond.sql.incremental.choices import AGGREGATES, choose_values
from millpond.sql.incremental.frames import NotKept
from millpond.sql.incremental.groups import used_inputs
from millpond.sql.incremental.nodes import Node, SortKey, TopNode, is_plain
from millpond.sql.incremental.windows import breaks_ties
from millpond.sql.resolve import Input, Resolved
from millpond.sql.typing import type_of
from millpond.types import Column, Schema

_MOST = 10_000
"""The largest LIMIT whose rows are kept in order."""
_SPARE = 1_000
"""Rows beyond the limit that are kept, so that others can follow when some leave."""


def limits(select: exp.Expr) -> tuple[int, int] | None:
    """Returns LIMIT and OFFSET; None without them."""
    limit, offset = select.args.get("limit"), select.args.get("offset")
    if limit is None and offset is None:
        return None
    counts = []
    for clause in (limit, offset):
        if clause is None:
            counts.append(0)
        elif isinstance(clause.expression, exp.Literal) and not clause.expression.is_string:
            counts.append(int(clause.expression.this))
        else:
            raise NotKept("LIMIT that is not a number")
    if limit is None or sum(counts) > _MOST:
        raise NotKept("a large LIMIT" if limit is not None else "OFFSET without LIMIT")
    if select.args.get("order") is None:
        raise NotKept("LIMIT without ORDER BY")
    return counts[0], counts[1]


def in_total_order(resolved: Resolved) -> Resolved:
    """Returns the query with the outputs of each SELECT with LIMIT at the end of its ORDER BY: so the same rows are the
    first whichever query asks for them, and rows that are equal in all of this are equal. Aggregates that may choose
    a value choose the same.
    """
    if resolved.expression.find(exp.Limit, exp.Window, *AGGREGATES) is None:
        return resolved
    tree = resolved.expression.copy()
    choose_values(tree)
    for select in tree.find_all(exp.Select):
        _break_ties_of_windows(select)
    for select in tree.find_all(exp.Select):
        order = select.args.get("order")
        if order is None or select.args.get("limit") is None:
            continue
        there = [o.this if isinstance(o, exp.Ordered) else o for o in order.expressions]
        for output in (p.unalias() for p in select.expressions):
            if output not in there and output.find(exp.Column, exp.AggFunc) is not None:
                order.append("expressions", exp.Ordered(this=output.copy(), desc=False, nulls_first=True))
    return dataclasses.replace(resolved, expression=tree)


def _break_ties_of_windows(select: exp.Select) -> None:
    """Adds what the outputs are computed from to the order of windows in which equal rows may come in any order."""
    clauses = [select.args.get(name) for name in ("qualify", "order")]
    roots = [*select.expressions, *(c for c in clauses if c is not None)]
    windows = [w for root in roots for w in root.find_all(exp.Window) if breaks_ties(w)]
    if not windows:
        return
    read: list[exp.Expr]
    if is_aggregated(select):  # they order groups
        read = list(dict.fromkeys([*grouping_keys(select), *aggregates(select)]))
    else:
        read = list(dict.fromkeys(c for root in roots for c in outer_columns(root)))
    for window in windows:
        order = window.args.get("order") or exp.Order(expressions=[])
        for column in (c.copy() for c in read):
            order.append("expressions", exp.Ordered(this=column, desc=False, nulls_first=True))
        window.set("order", order)


def sort_keys(select: exp.Select) -> tuple[list[exp.Expr], list[SortKey]]:
    """Returns what rows are sorted by that is not an output, and the keys; those are at the end of the outputs."""
    outputs = [p.unalias() for p in select.expressions]
    more: list[exp.Expr] = []
    keys: list[SortKey] = []
    for ordered in select.args["order"].expressions:
        node = ordered.this if isinstance(ordered, exp.Ordered) else ordered
        if isinstance(node, exp.Literal) and not node.is_string:
            at = int(node.this) - 1
        elif node in outputs:
            at = outputs.index(node)
        else:
            more.append(node)
            at = len(outputs) + len(more) - 1
        descending = bool(ordered.args.get("desc"))
        first = ordered.args.get("nulls_first")
        keys.append(SortKey(at, descending, not descending if first is None else bool(first)))
    return more, keys


def build_top(
    select: exp.Select,
    child: Node,
    more: Sequence[exp.Expr],
    keys: Sequence[SortKey],
    counts: tuple[int, int],
    inputs: Sequence[Input],
) -> TopNode:
    """Returns the operator of the first rows of ``child``, whose last columns are ``more``, in the order of
    ``select``.
    """
    limit, offset = counts
    if not all(is_plain(type_of(m)) for m in more):
        raise NotKept("ORDER BY a value that is not a number, text, date, time or Boolean")
    width, kept = len(child.types) - len(more), limit + offset + _SPARE
    made = select.copy()
    outputs = [named(p.unalias().copy(), f"k{i}") for i, p in enumerate(made.expressions)]
    outputs += [named(m.copy(), f"k{width + i}") for i, m in enumerate(more)]
    made.set("expressions", outputs)
    made.set("limit", exp.Limit(expression=exp.Literal.number(kept)))
    made.set("offset", None)
    types: list[pa.DataType] = list(child.types)
    schema = Schema(tuple(Column(f"k{i}", t) for i, t in enumerate(types)))
    load = Resolved(made, schema, used_inputs(made, inputs))
    return TopNode(child, tuple(keys), limit, offset, width, kept, load)
