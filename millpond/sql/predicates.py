"""Reads SQL conditions as the tree of ``millpond.predicates``: the only path from text to what an index or database
searches.

The result is true for every row for which the condition is true. ``whole`` says whether it is the complete condition;
if not, the condition is evaluated on the rows that are found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

from millpond.predicates import All, Compare, IsNull, OneOf, Operator, Predicate, all_of, any_of
from millpond.types import Column, Schema

OPERATORS: Mapping[type[exp.Expr], Operator] = {
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
"""Returns the column of the table, if an expression is just a column."""
Value = Callable[[exp.Expr, Column], Any]
"""Returns the value that an expression compares the column with; None if none means the same."""


class Reading(NamedTuple):
    """Contains what was read of a condition, and whether that is all of it."""

    predicate: Predicate | None
    whole: bool


NOTHING = Reading(None, False)


class PredicateReader:
    """Reads conditions on the columns that ``find`` knows, with the values that ``value`` creates."""

    def __init__(self, find: Find, value: Value):
        self._find = find
        self._value = value

    def read(self, tree: exp.Expr, *, negated: bool = False) -> Reading:
        """Returns what the tree implies. Any part of AND is enough, OR needs every part; NOT swaps them."""
        if isinstance(tree, exp.Paren):
            return self.read(tree.this, negated=negated)
        if isinstance(tree, exp.Not):
            return self.read(tree.this, negated=not negated)
        if isinstance(tree, exp.And | exp.Or):
            left, right = self.read(tree.left, negated=negated), self.read(tree.right, negated=negated)
            return _both(left, right) if isinstance(tree, exp.And) != negated else _either(left, right)
        if isinstance(tree, exp.Is) and isinstance(tree.expression, exp.Null):
            column = self._find(tree.this)
            return NOTHING if column is None else Reading(IsNull(column.name, not negated), True)
        if isinstance(tree, exp.Between):
            low = self._compare(tree.this, tree.args["low"], "<" if negated else ">=")
            high = self._compare(tree.this, tree.args["high"], ">" if negated else "<=")
            return _either(low, high) if negated else _both(low, high)
        if isinstance(tree, exp.In):
            return self._in(tree, negated=negated)
        if isinstance(tree, exp.Like):
            return NOTHING if negated else self._like(tree)
        operator = OPERATORS.get(type(tree))
        if operator is not None:
            return self._compare(tree.this, tree.expression, _OPPOSITE[operator] if negated else operator)
        column = self._find(tree)
        if column is None or column.type is None or not pa.types.is_boolean(column.type):
            return NOTHING
        return Reading(Compare(column.name, "=", not negated), True)

    def _compare(self, left: exp.Expr, right: exp.Expr, operator: Operator) -> Reading:
        column = self._find(left)
        if column is None:
            column, right, operator = self._find(right), left, _TURNED[operator]
        value = None if column is None else self._value(right, column)
        if column is None or value is None:
            return NOTHING
        return Reading(Compare(column.name, operator, value), True)

    def _in(self, tree: exp.In, *, negated: bool) -> Reading:
        column = self._find(tree.this)
        if column is None or not tree.expressions or tree.args.get("query"):
            return NOTHING
        values = tuple(self._value(e, column) for e in tree.expressions)
        if any(v is None for v in values):
            return NOTHING
        if len(values) == 1:
            return Reading(Compare(column.name, "!=" if negated else "=", values[0]), True)
        return Reading(OneOf(column.name, values, negated), True)

    def _like(self, tree: exp.Like) -> Reading:
        """Reads ``LIKE 'abc%'`` as a range of texts."""
        column, pattern = self._find(tree.this), tree.expression
        if column is None or column.type is None or not pa.types.is_string(column.type):
            return NOTHING
        if not isinstance(pattern, exp.Literal) or not _PLAIN_PATTERN.fullmatch(str(pattern.this)):
            return NOTHING
        prefix = str(pattern.this)[:-1]
        last = ord(prefix[-1])
        low = Compare(column.name, ">=", prefix)
        if not prefix.isascii() or last >= 127:
            return Reading(low, False)
        return Reading(All((low, Compare(column.name, "<", prefix[:-1] + chr(last + 1)))), False)


def _both(left: Reading, right: Reading) -> Reading:
    return Reading(all_of(left.predicate, right.predicate), left.whole and right.whole)


def _either(left: Reading, right: Reading) -> Reading:
    if left.predicate is None or right.predicate is None:
        return NOTHING
    return Reading(any_of(left.predicate, right.predicate), left.whole and right.whole)


def read_condition(tree: exp.Expr, schema: Schema, alias: str | None = None) -> Reading:
    """Returns what a condition with constants requires of the table alone; columns of others have another ``alias``."""
    return PredicateReader(columns_of_table(schema, alias), constant).read(tree)


def columns_of_table(schema: Schema, alias: str | None) -> Find:
    """Returns a function that finds the columns of a table with this name; without a name, all columns are its own."""

    def find(node: exp.Expr) -> Column | None:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        if alias is None:
            return schema.find(node.name) if len(node.parts) == 1 else None
        own = len(node.parts) == 2 and node.table.lower() == alias.lower()
        return schema.find(node.name) if own else None

    return find


def constant(node: exp.Expr, column: Column) -> Any:
    """Returns the value of a constant in the column's type; None if it is not one, or Spark would compare in
    another type.
    """
    t, dtype = pa.types, column.type
    if dtype is None:
        return None
    node = node.unnest()
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        wanted = {"DATE": t.is_date, "TIMESTAMP": t.is_timestamp, "TIMESTAMPTZ": t.is_timestamp}
        fits = wanted.get(node.to.this.name if isinstance(node.to.this, exp.DType) else "")
        return time_in(str(node.this.this), dtype) if fits is not None and fits(dtype) else None
    if isinstance(node, exp.Boolean):
        return bool(node.this) if t.is_boolean(dtype) else None
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if not isinstance(literal, exp.Literal):
        return None
    text = str(literal.this)
    if literal.is_string:
        return None if negative else text if t.is_string(dtype) else time_in(text, dtype)
    return number_in(("-" if negative else "") + text, dtype)


def number_in(text: str, dtype: pa.DataType) -> Any:
    """Returns the number in a text, in the type; None if it does not fit without loss."""
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


def time_in(text: str, dtype: pa.DataType) -> date | datetime | None:
    """Returns the date or time in a text, in the type; None for other spellings and types."""
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
