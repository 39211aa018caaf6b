"""The part of a condition that a table's backend can look for by itself.

What is found here holds for every row for which the condition holds: the rest of the condition is evaluated
afterwards. Only comparisons that mean the same everywhere are taken, those of a column with a constant of its type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.predicates import All, Any_, Compare, IsNull, Need, Operator, Predicate, all_of
from millpond.sql.bind import OPEN
from millpond.sql.grouping import contains_window, is_aggregated
from millpond.sql.resolve import Input, Resolved
from millpond.sql.running import from_items
from millpond.types import Column, Schema

_OPERATORS: Mapping[type[exp.Expr], Operator] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_TURNED: Mapping[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE: Mapping[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?")
_PLAIN_PATTERN = re.compile(r"[^%_\\]+%")

Find = Callable[[exp.Expr], Column | None]
"""The column of the table that an expression is, if it is just that."""


@dataclass(frozen=True, slots=True)
class Open:
    """Stands for the value of a comparison that comes when the statement runs: which one, and in what type."""

    at: int
    negative: bool
    type: pa.DataType

    def value(self, values: Sequence[Any]) -> Any:
        """It, of those that came; None if the comparison cannot be looked for with it."""
        value = values[self.at]
        if isinstance(value, str):
            return value
        if isinstance(value, date):
            return _time(value.isoformat(), self.type)
        value = -value if self.negative else value
        return _number(f"{value:f}" if isinstance(value, Decimal) else str(value), self.type)


def filled(predicate: Predicate, values: Sequence[Any]) -> Predicate | None:
    """The condition with the values that came; None if one of them has no place in it."""
    match predicate:
        case Compare(column, operator, Open() as open_value):
            value = open_value.value(values)
            return None if value is None else Compare(column, operator, value)
        case All(parts) | Any_(parts):
            made = tuple(p for part in parts if (p := filled(part, values)) is not None)
            return type(predicate)(made) if len(made) == len(parts) else None
    return predicate


def predicate_of(tree: exp.Expr, schema: Schema, alias: str | None = None) -> Predicate | None:
    """What the condition asks of the table alone; columns of others have another ``alias``."""
    return _part(tree, _finding(schema, alias))


def _finding(schema: Schema, alias: str | None) -> Find:
    def find(node: exp.Expr) -> Column | None:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        if alias is None:
            return schema.find(node.name) if len(node.parts) == 1 else None
        own = len(node.parts) == 2 and node.table.lower() == alias.lower()
        return schema.find(node.name) if own else None

    return find


def pushed(resolved: Resolved) -> dict[str, Predicate]:
    """View → what a query asks of the table behind it, whatever else it does with its rows."""
    select = resolved.expression
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    if where is None or select.args.get("laterals"):
        return {}
    items = list(from_items(select))
    found: dict[str, Predicate] = {}
    for at, (item, join) in enumerate(items):
        if not isinstance(item, exp.Table) or _may_be_missing(join, [j for _, j in items[at + 1 :]]):
            continue
        source = resolved.input(item.name)
        uses = sum(t.name == item.name for t in select.find_all(exp.Table))
        names = item.args.get("alias")
        if source is None or uses != 1 or (names is not None and names.args.get("columns")):
            continue
        predicate = predicate_of(where.this, source.relation.schema, item.alias_or_name)
        if predicate is not None:
            found[source.view] = predicate
    return found


def need_of(resolved: Resolved, source: Input) -> Need:
    """What the query needs of one of its inputs. There is no limit where its condition is more than what is found here
    of it."""
    predicate, limit = pushed(resolved).get(source.view), _limit(resolved)
    where = resolved.expression.args.get("where")
    if where is not None and (predicate is None or not _is_all(where.this, _finder(source))):
        limit = None
    return Need(_columns(resolved, source), predicate, limit)


def _finder(source: Input) -> Find:
    return _finding(source.relation.schema, source.alias)


def _is_all(tree: exp.Expr, find: Find) -> bool:
    """Whether what ``_part`` finds in a condition is all of it."""
    if isinstance(tree, exp.Paren | exp.Not):
        return _is_all(tree.this, find)
    if isinstance(tree, exp.And | exp.Or):
        return _is_all(tree.left, find) and _is_all(tree.right, find)
    if isinstance(tree, exp.Between):
        return all(_compare(tree.this, tree.args[side], "=", find) is not None for side in ("low", "high"))
    return not isinstance(tree, exp.Like) and _part(tree, find) is not None


def _columns(resolved: Resolved, source: Input) -> tuple[str, ...] | None:
    """The columns of an input that are named anywhere; None for all, or if that cannot be told."""
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
    """How many rows of its one input a query takes, any of them, if nothing chooses among them."""
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
    """Whether a join may give rows with NULL for this input, so that WHERE is not about its rows alone."""
    sides = [(j.side or "").upper() for j in later if j is not None]
    if own is not None and (
        (own.side or "").upper() in ("LEFT", "FULL") or (own.kind or "").upper() in ("SEMI", "ANTI")
    ):
        return True
    return "RIGHT" in sides or "FULL" in sides


def _part(tree: exp.Expr, find: Find, *, negated: bool = False) -> Predicate | None:
    """What the tree implies. Of AND any part is enough, of OR every part is needed; NOT turns them around."""
    if isinstance(tree, exp.Paren):
        return _part(tree.this, find, negated=negated)
    if isinstance(tree, exp.Not):
        return _part(tree.this, find, negated=not negated)
    if isinstance(tree, exp.And | exp.Or):
        left, right = (_part(side, find, negated=negated) for side in (tree.left, tree.right))
        if isinstance(tree, exp.And) != negated:
            return all_of(left, right)
        return Any_((left, right)) if left is not None and right is not None else None
    if isinstance(tree, exp.Is) and isinstance(tree.expression, exp.Null):
        column = find(tree.this)
        return None if column is None else IsNull(column.name, not negated)
    if isinstance(tree, exp.Between):
        return _between(tree, find, negated=negated)
    if isinstance(tree, exp.In):
        return _in(tree, find, negated=negated)
    if isinstance(tree, exp.Like) and not negated:
        return _like(tree, find)
    operator = _OPERATORS.get(type(tree))
    if operator is None:
        return None
    return _compare(tree.this, tree.expression, _OPPOSITE[operator] if negated else operator, find)


def _compare(left: exp.Expr, right: exp.Expr, operator: Operator, find: Find) -> Predicate | None:
    column = find(left)
    if column is None:
        column, right, operator = find(right), left, _TURNED[operator]
    value = None if column is None else _constant(right, column)
    if column is None or value is None:
        return None
    return Compare(column.name, operator, _open(right, column) or value)


def _between(tree: exp.Between, find: Find, *, negated: bool) -> Predicate | None:
    low = _compare(tree.this, tree.args["low"], "<" if negated else ">=", find)
    high = _compare(tree.this, tree.args["high"], ">" if negated else "<=", find)
    if not negated:
        return all_of(low, high)
    return Any_((low, high)) if low is not None and high is not None else None


def _in(tree: exp.In, find: Find, *, negated: bool) -> Predicate | None:
    column = find(tree.this)
    if column is None or not tree.expressions:
        return None
    values = [_constant(e, column) for e in tree.expressions]
    if any(v is None for v in values):
        return None
    values = [_open(e, column) or v for e, v in zip(tree.expressions, values, strict=True)]
    parts = tuple(Compare(column.name, "!=" if negated else "=", v) for v in values)
    return parts[0] if len(parts) == 1 else All(parts) if negated else Any_(parts)


def _like(tree: exp.Like, find: Find) -> Predicate | None:
    """``LIKE 'abc%'`` is a range of texts."""
    column, pattern = find(tree.this), tree.expression
    if column is None or column.type is None or not pa.types.is_string(column.type):
        return None
    if not isinstance(pattern, exp.Literal) or not _PLAIN_PATTERN.fullmatch(str(pattern.this)):
        return None
    prefix = str(pattern.this)[:-1]
    last = ord(prefix[-1])
    if not prefix.isascii() or last >= 127:
        return Compare(column.name, ">=", prefix)
    return All((Compare(column.name, ">=", prefix), Compare(column.name, "<", prefix[:-1] + chr(last + 1))))


def _open(node: exp.Expr, column: Column) -> Open | None:
    """What stands for a value that comes when the statement runs, if the node is one."""
    negative = False
    while True:
        at = node.meta.get(OPEN) if node._meta else None
        if at is not None:
            return Open(at, negative, column.type)
        if not isinstance(node, exp.Paren | exp.Neg):
            return None
        negative ^= isinstance(node, exp.Neg)
        node = node.this


def _constant(node: exp.Expr, column: Column) -> Any:
    """The value of a constant in the column's type; None if it is none, or Spark would compare in another type."""
    t, dtype = pa.types, column.type
    if dtype is None:
        return None
    node = node.unnest()
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        wanted = {"DATE": t.is_date, "TIMESTAMP": t.is_timestamp, "TIMESTAMPTZ": t.is_timestamp}
        fits = wanted.get(node.to.this.name if isinstance(node.to.this, exp.DType) else "")
        return _time(str(node.this.this), dtype) if fits is not None and fits(dtype) else None
    if isinstance(node, exp.Boolean):
        return bool(node.this) if t.is_boolean(dtype) else None
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if not isinstance(literal, exp.Literal):
        return None
    text = str(literal.this)
    if literal.is_string:
        return None if negative else text if t.is_string(dtype) else _time(text, dtype)
    return _number(("-" if negative else "") + text, dtype)


def _number(text: str, dtype: pa.DataType) -> Any:
    t = pa.types
    if not re.fullmatch(r"-?\d+(?:\.\d+)?", text):
        return None
    number = Decimal(text)
    if t.is_integer(dtype):
        whole = int(number)
        fits = whole == number and -(1 << (dtype.bit_width - 1)) <= whole < 1 << (dtype.bit_width - 1)
        return whole if fits else None
    if t.is_decimal(dtype):
        try:
            return pa.scalar(number).cast(dtype).as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
    return float(number) if t.is_float64(dtype) else None


def _time(text: str, dtype: pa.DataType) -> date | datetime | None:
    t = pa.types
    try:
        if t.is_date(dtype) and _DATE.fullmatch(text):
            return date.fromisoformat(text)
        if t.is_timestamp(dtype) and (_TIME.fullmatch(text) or _DATE.fullmatch(text)):
            found = datetime.fromisoformat(text)
            return found.replace(tzinfo=UTC) if dtype.tz else found
    except ValueError:
        return None
    return None
