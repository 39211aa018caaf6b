"""Builds the operator of window functions."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.sql.aggregate.find import call_of, row_of
from millpond.sql.aggregate.nodes import fitted, named, source
from millpond.sql.conjuncts import all_of
from millpond.sql.grouping import is_aggregated
from millpond.sql.incremental.frames import ColumnId, Frame, NotKept, id_of
from millpond.sql.incremental.lookup_columns import finds
from millpond.sql.incremental.nodes import IN, WindowNode, is_key, is_plain
from millpond.sql.resolve import Resolved
from millpond.sql.typing import output_types, type_of
from millpond.types import Column, Schema

_RANKS = (exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist)
_NUMBERS = (exp.RowNumber, exp.Ntile, exp.Lag, exp.Lead)


def build_window(
    select: exp.Select, frame: Frame, conditions: Sequence[exp.Expr], more: Sequence[exp.Expr]
) -> WindowNode:
    """Returns the operator of a SELECT with OVER over the rows of ``frame`` for which ``conditions`` hold; ``more`` are
    outputs after its own.
    """
    if is_aggregated(select):
        raise NotKept("OVER of groups")
    qualify = select.args.get("qualify")
    outputs = [*(p.unalias() for p in select.expressions), *more]
    roots = [*outputs, *([] if qualify is None else [qualify.this])]
    if any(root.find(exp.Query) is not None for root in roots):
        raise NotKept("a subquery")
    for window in (w for root in roots for w in root.find_all(exp.Window)):
        if not (alike(window) or breaks_ties(window)):
            raise NotKept("a window function that depends on the order of equal rows")
    columns = _divided_by([w for root in roots for w in root.find_all(exp.Window)], frame)
    if not finds(frame.node, columns):
        columns = ()
    if not finds(frame.node, columns):
        raise NotKept("OVER without PARTITION BY a column, of rows that no operator lists")
    types: list[pa.DataType | None] = [*output_types(select), *map(type_of, more)]
    if not all(is_plain(t) for t in types):
        raise NotKept("a column that is not a number, text, date, time or Boolean")
    made = exp.Select(
        expressions=[
            named(fitted(frame.over(o), t), f"o{i}")
            for i, (o, t) in enumerate(zip(outputs, types, strict=True))
        ],
        from_=source(IN),
    )
    where = all_of([frame.over(c) for c in conditions])
    if where is not None:
        made.set("where", exp.Where(this=where))
    if qualify is not None:
        made.set("qualify", exp.Qualify(this=frame.over(qualify.this)))
    known = tuple(t for t in types if t is not None)
    schema = Schema(tuple(Column(f"o{i}", t) for i, t in enumerate(known)))
    return WindowNode(frame.node, columns, Resolved(made, schema, ()), known)


def alike(window: exp.Window) -> bool:
    """Returns whether a window function returns the same for rows with an equal place, in whatever order they come."""
    if isinstance(window.this, _RANKS):
        return True
    row = row_of(call_of(window.this).function)
    return row is not None and row.by_group and not _counts_rows(window)


def breaks_ties(window: exp.Window) -> bool:
    """Returns whether a window function may see rows with an equal place in any order, so in one that we choose."""
    return isinstance(window.this, _NUMBERS) or _counts_rows(window)


def _counts_rows(window: exp.Window) -> bool:
    spec = window.args.get("spec")
    return spec is not None and str(spec.args.get("kind")).upper() == "ROWS"


def divided_by(select: exp.Select) -> list[ColumnId]:
    """Returns the columns by which windows of a SELECT divide its rows."""
    clauses = [*select.expressions, *([q.this] if (q := select.args.get("qualify")) else [])]
    windows = [w for clause in clauses for w in clause.find_all(exp.Window)]
    parts = [e.unnest() for w in windows for e in w.args.get("partition_by") or ()]
    return [id_of(part) for part in parts if isinstance(part, exp.Column)]


def _divided_by(windows: Sequence[exp.Window], frame: Frame) -> tuple[int, ...]:
    """Returns the columns that all windows divide the rows by."""
    found: list[set[int]] = []
    for window in windows:
        places = [frame.at(e) for e in window.args.get("partition_by") or ()]
        found.append({p for p in places if p is not None and is_key(frame.node.types[p])})
    return tuple(sorted(set.intersection(*found))) if found else ()
