"""Renders OVER (…) and ORDER BY."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millpond.sql.render.duckdb.expression import Expressions
from millpond.sql.render.duckdb.intervals import interval
from millpond.sql.render.duckdb.names import Unrenderable
from millpond.sql.typing.coercion import is_nested
from millpond.sql.typing.functions import integer_value
from millpond.sql.typing.literals import interval_units

_KNOWN = {"this", "partition_by", "order", "spec", "over", "first"}


def ordering(r: Expressions, items: Sequence[exp.Expr]) -> str:
    """Renders sort keys; always says where NULLs go, because the defaults differ."""
    return ", ".join(_ordered(r, item) for item in items)


def _ordered(r: Expressions, item: exp.Expr) -> str:
    if not isinstance(item, exp.Ordered) or item.args.get("with_fill"):
        raise Unrenderable("an ORDER BY of another form")
    return sort_key(r, item.this) + direction(item)


def sort_key(r: Expressions, node: exp.Expr) -> str:
    """Returns what to sort by; a NULL inside a nested value is the greatest for DuckDB, and the least for Spark."""
    if is_nested(r.type(node)):
        raise Unrenderable("an order of arrays and structs")
    return r.sql(node)


def direction(item: exp.Ordered) -> str:
    desc, first = item.args.get("desc"), item.args.get("nulls_first")
    if first is None:
        first = not desc
    return f"{' DESC' if desc else ' ASC'} NULLS {'FIRST' if first else 'LAST'}"


def over(r: Expressions, node: exp.Expr) -> str:
    """Renders ``OVER (…)``; the names of windows are already expanded."""
    if (
        any(v for k, v in node.args.items() if k not in _KNOWN)
        or str(node.args.get("over", "OVER")) != "OVER"
    ):
        raise Unrenderable("a window of another form")
    return f"OVER ({specification(r, node)})"


def specification(r: Expressions, node: exp.Expr) -> str:
    """Renders what is inside the parentheses of a window."""
    parts = []
    partition, order, spec = (node.args.get(k) for k in ("partition_by", "order", "spec"))
    if partition:
        parts.append("PARTITION BY " + ", ".join(r.sql(e) for e in partition))
    if order is not None:
        parts.append("ORDER BY " + ordering(r, order.expressions))
    if spec is not None:
        parts.append(_frame(spec))
    return " ".join(parts)


def _frame(spec: exp.Expr) -> str:
    if spec.args.get("exclude"):
        raise Unrenderable("a window frame with EXCLUDE")
    kind = str(spec.args.get("kind") or "ROWS")
    start = _bound(spec.args.get("start"), spec.args.get("start_side"))
    end = _bound(spec.args.get("end"), spec.args.get("end_side")) if spec.args.get("end") else "CURRENT ROW"
    return f"{kind} BETWEEN {start} AND {end}"


def _bound(value: object, side: object) -> str:
    if isinstance(value, str):
        return f"{value} {side}" if side and value != "CURRENT ROW" else value
    if isinstance(value, exp.Expr):
        steps = integer_value(value)
        if steps is not None and steps >= 0:
            return f"{steps} {side}"
        if interval_units(value) is not None:
            return f"{interval(value)} {side}"
    raise Unrenderable("a window frame of another form")
