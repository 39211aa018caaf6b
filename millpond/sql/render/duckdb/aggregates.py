"""Renders aggregates and window functions, with FILTER and OVER."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.sql import functions
from millpond.sql.functions import by_name, by_node
from millpond.sql.nodes import NEVER_NULL
from millpond.sql.render.duckdb import windows
from millpond.sql.render.duckdb.arithmetic import divide
from millpond.sql.render.duckdb.call import Aggregate, Call
from millpond.sql.render.duckdb.expression import Entry, Expressions
from millpond.sql.render.duckdb.names import Unrenderable, typed
from millpond.sql.render.duckdb.raising import may_raise
from millpond.sql.typing import decimals
from millpond.sql.typing.aggregates import argument
from millpond.sql.typing.coercion import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    DURATION,
    NULL,
    STRING,
    is_decimal,
    is_nested,
)

_MOST_KEYS = 62


def _distinct(node: exp.Expr) -> str:
    inner = node.this.this if isinstance(node.this, exp.Order) else node.this
    return "DISTINCT " if isinstance(inner, exp.Distinct) else ""


def count(r: Expressions, node: exp.Expr) -> Call:
    if isinstance(node.this, exp.Star):
        return Call(("count(*)",))
    items = node.this.expressions if isinstance(node.this, exp.Distinct) else [node.this, *node.expressions]
    values = [r.sql(e) for e in items]
    if len(values) == 1:
        return Call((f"count({_distinct(node)}{values[0]})",))
    return Call(
        (f"count({_distinct(node)}row({', '.join(values)}))",),
        filters=tuple(f"{v} IS NOT NULL" for v in values),
    )


def count_if(r: Expressions, node: exp.Expr) -> Call:
    return Call((f"count({_distinct(node)}CASE WHEN {r.to(argument(node), BOOLEAN)} THEN 1 END)",))


def distinct_count(r: Expressions, node: exp.Expr) -> Call:
    """Renders APPROX_COUNT_DISTINCT: the exact number is close enough."""
    return Call((f"count(DISTINCT {r.sql(argument(node))})",))


def grouping(r: Expressions, node: exp.Expr) -> Call:
    """Renders GROUPING and GROUPING_ID, whose arguments are all keys if there are none. Spark says where they may not
    be.
    """
    select = node.find_ancestor(exp.Select)
    group = None if select is None else select.args.get("group")
    parts = [] if group is None else group.expressions
    if not any(isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets) for part in parts):
        raise Unrenderable("GROUPING without ROLLUP, CUBE or GROUPING SETS")
    keys = list(dict.fromkeys(key for part in parts for key in _keys_of(part)))
    asked = node.expressions or keys
    if any(key not in keys for key in asked) or len(asked) > _MOST_KEYS:
        raise Unrenderable("GROUPING of what is not grouped by")
    result = r.type(node)
    return Call((f"grouping({', '.join(r.sql(key) for key in asked)})",), lambda s: typed(s, result))


def _keys_of(part: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
        for inner in part.expressions:
            yield from _keys_of(inner)
    else:
        yield part.unnest()


def total(r: Expressions, node: exp.Expr) -> Call:
    result = r.type(node)
    if result == DURATION:
        raise Unrenderable("SUM of intervals")
    inner = DOUBLE if result == DOUBLE else None
    value = r.to(argument(node), inner) if inner is not None else r.sql(argument(node))
    return Call((f"sum({_distinct(node)}{value})",), lambda s: typed(s, result))


def mean(r: Expressions, node: exp.Expr) -> Call:
    result, item = r.type(node), argument(node)
    if result == DURATION:
        raise Unrenderable("AVG of intervals")
    if not is_decimal(result):
        return Call((f"avg({_distinct(node)}{r.to(item, DOUBLE)})",))
    source, value = r.type(item), r.sql(item)
    summed, counted = decimals.total(source), decimals.of_integer(BIGINT)

    def finish(total: str, number: str) -> str:
        found = divide(typed(total, summed), summed, f"nullif({number}, 0)", counted, result)
        return f"({found})"

    return Call((f"sum({_distinct(node)}{value})", f"count({_distinct(node)}{value})"), finish)


def simple(name: str, suffix: str = "") -> Aggregate:
    """Renders an aggregate that means the same in both."""

    def aggregate(r: Expressions, node: exp.Expr) -> Call:
        if r.type(argument(node)) == NULL:
            raise Unrenderable(f"{name} of NULL")
        if r.type(argument(node)) != r.type(node):
            raise Unrenderable(f"{name} of what is cast")
        if name in ("min", "max") and is_nested(r.type(argument(node))):
            raise Unrenderable("an order of arrays and structs")
        return Call((f"{name}({_distinct(node)}{r.sql(argument(node))}{suffix})",))

    return aggregate


def of_doubles(name: str) -> Aggregate:
    def aggregate(r: Expressions, node: exp.Expr) -> Call:
        items = [argument(node)]
        if isinstance(node.args.get("expression"), exp.Expr):
            items.append(node.expression)
        values = ", ".join(r.to(e, DOUBLE) for e in items)
        return Call((f"{name}({_distinct(node)}{values})",))

    return aggregate


def quantile(r: Expressions, node: exp.Expr) -> Call:
    """Renders MEDIAN and PERCENTILE, which interpolate."""
    share = node.args.get("quantile")
    if node.expressions or (share is not None and (not isinstance(share, exp.Literal) or share.is_string)):
        raise Unrenderable("PERCENTILE with another share than a number")
    portion = share.name if share is not None else "0.5"
    return Call((f"quantile_cont({_distinct(node)}{r.to(argument(node), DOUBLE)}, {portion})",))


def approximate(r: Expressions, node: exp.Expr) -> Call:
    """Renders PERCENTILE_APPROX: the exact value is close enough."""
    share = node.args.get("quantile")
    if not isinstance(share, exp.Literal) or share.is_string:
        raise Unrenderable("PERCENTILE_APPROX with another share than a number")
    if r.type(argument(node)) == NULL:
        raise Unrenderable("PERCENTILE_APPROX of NULL")
    return Call((f"quantile_disc({_distinct(node)}{r.sql(argument(node))}, {share.name})",))


def of_order(name: str) -> Aggregate:
    """Renders PERCENTILE_CONT and PERCENTILE_DISC, which take WITHIN GROUP (ORDER BY x)."""

    def aggregate(r: Expressions, node: exp.Expr) -> Call:
        if not isinstance(node, exp.WithinGroup):
            raise Unrenderable(f"{node.key.upper()} has no entry")
        order, share = node.expression.expressions[0], node.this.this
        if not isinstance(share, exp.Literal):
            raise Unrenderable(f"{node.this.key.upper()} WITHIN GROUP")
        if order.args.get("desc"):
            raise Unrenderable("PERCENTILE of a descending order")
        return Call((f"{name}({r.to(order.this, DOUBLE)}, {share.name})",))

    return aggregate


def within_group(r: Expressions, node: exp.Expr) -> Call:
    """Returns the function before WITHIN GROUP, if it is one that takes it."""
    form = _form(node.this, over=False)
    if not isinstance(node.this, exp.PercentileCont | exp.PercentileDisc) or form is None:
        raise Unrenderable(f"{node.this.key.upper()} WITHIN GROUP")
    return form(r, node)


def collected(r: Expressions, node: exp.Expr) -> Call:
    """Renders COLLECT_LIST and COLLECT_SET: they skip NULLs, and return an empty array without rows."""
    value = r.sql(argument(node))
    distinct = "DISTINCT " if isinstance(node, exp.ArrayUniqueAgg) else _distinct(node)
    empty = typed("[]", r.type(node))
    return Call(
        (f"list({distinct}{value}{_order(r, node)})",),
        lambda s: f"coalesce({s}, {empty})",
        (f"{value} IS NOT NULL",),
    )


def joined(r: Expressions, node: exp.Expr) -> Call:
    separator = node.args.get("separator")
    if separator is not None and not isinstance(separator, exp.Literal):
        raise Unrenderable("STRING_AGG with a separator that is not written out")
    between = r.sql(separator) if separator is not None else "''"
    if _distinct(node) and _order(r, node) and r.type(argument(node)) != STRING:
        raise Unrenderable("STRING_AGG of distinct values in the order of something that is no text")
    if r.type(node) != STRING:
        raise Unrenderable("STRING_AGG of BINARY")
    value = r.to(argument(node), STRING)
    return Call((f"string_agg({_distinct(node)}{value}, {between}{_order(r, node)})",))


def _order(r: Expressions, node: exp.Expr) -> str:
    if not isinstance(node.this, exp.Order):
        return ""
    return " ORDER BY " + windows.ordering(r, node.this.expressions)


def by(name: str) -> Aggregate:
    """Renders MAX_BY and MIN_BY: they include a row whose value is NULL, and skip one whose ordering is NULL."""

    def aggregate(r: Expressions, node: exp.Expr) -> Call:
        order = r.type(node.expression)
        fields = order if node.expression.meta.get(NEVER_NULL) else [order]
        if any(is_nested(getattr(field, "type", field)) for field in fields):
            raise Unrenderable("an order of arrays and structs")
        key = r.sql(node.expression)
        return Call((f"{name}({r.sql(node.this)}, {key})",))

    return aggregate


def aggregate(r: Expressions, node: exp.Expr) -> str:
    """Renders an aggregate without OVER, maybe with FILTER or IGNORE NULLS."""
    return _finish(r, node, "")


def window(r: Expressions, node: exp.Expr) -> str:
    return _finish(r, node.this, " " + windows.over(r, node))


def _finish(r: Expressions, node: exp.Expr, over: str) -> str:
    conditions: list[exp.Expr] = []
    ignore = False
    while isinstance(node, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        if isinstance(node, exp.Filter):
            conditions.append(node.expression.this)
        ignore = ignore or isinstance(node, exp.IgnoreNulls)
        node = node.this
    filters = [r.to(condition, BOOLEAN) for condition in conditions]
    if conditions and not isinstance(node.this, exp.Star) and may_raise(argument(node)):
        node = _guarded(node, conditions[0])
    entry = _form(node, over=bool(over))
    if entry is None:
        raise Unrenderable(f"{node.key.upper()} {'OVER' if over else 'as an aggregate'} has no entry")
    made = entry(r, node)
    if ignore and over:
        made = made.ignoring_nulls()
    elif ignore:
        filters.append(f"{r.sql(argument(node))} IS NOT NULL")
    return made.sql(tuple(filters), over)


def _form(node: exp.Expr, *, over: bool) -> Aggregate | None:
    if isinstance(node, exp.WithinGroup):
        return within_group
    row = by_name().get(node.name.lower()) if isinstance(node, exp.Anonymous) else by_node().get(type(node))
    fits = isinstance(row, functions.Aggregate) or (over and isinstance(row, functions.WindowFunction))
    return row.duckdb if row is not None and fits and callable(row.duckdb) else None


def _guarded(node: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """Returns the aggregate with its argument evaluated only where the filter is true."""
    guarded = node.copy()
    inner = argument(guarded)
    inner.replace(exp.If(this=condition.copy(), true=inner.copy()))
    return guarded


ENTRIES: dict[type[exp.Expr], Entry] = {
    exp.WithinGroup: aggregate,
    exp.Filter: aggregate,
    exp.IgnoreNulls: aggregate,
    exp.RespectNulls: aggregate,
    exp.Window: window,
}
