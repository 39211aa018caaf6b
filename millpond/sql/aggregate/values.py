"""Handles functions that need the values of a group: what they store, and how they are read from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from millpond.sql.aggregate.find import Call, row_of
from millpond.sql.aggregate.model import COUNT, SEQUENCE
from millpond.sql.aggregate.nodes import column, every, not_null, struct
from millpond.sql.typing import type_of
from millpond.sql.typing.aggregates import argument
from millpond.types import Column

_HOLDERS = (
    exp.Distinct,
    exp.Order,
    exp.Ordered,
    exp.WithinGroup,
    exp.PercentileCont,
    exp.PercentileDisc,
    exp.Mode,
)
"""Parts of a call that are not values themselves."""


@dataclass(frozen=True, slots=True)
class Values:
    """Describes the rows to store for a group: those where ``condition`` is true, with ``_seq`` if ``ordered``."""

    values: tuple[exp.Expr, ...]
    condition: exp.Expr | None
    ordered: bool

    @property
    def columns(self) -> tuple[Column, ...]:
        order = (Column(SEQUENCE, pa.int64()),) if self.ordered else ()
        return (*order, *(Column(f"v{i}", type_of(v)) for i, v in enumerate(self.values)))


def distinct_values(call: Call) -> Values | None:
    """Returns what to store for DISTINCT where only a new value makes a difference."""
    function = call.function
    row = row_of(function)
    if not call.distinct or row is None or row.keeps is None or row.repeatable:
        return None
    items = tuple(function.this.expressions)
    return Values(items, every(call.condition, *(not_null(i) for i in items)), False)


def over_fresh(call: Call, view: str, values: Values) -> Call:
    """Returns the function over values that each occur once, without its DISTINCT and FILTER."""
    function = call.function.copy()
    function.set("this", column(view, values.columns[0]))
    return Call(function, None, False)


def kept_values(call: Call) -> tuple[Values, Callable[[str], exp.Expr]]:
    """Returns what to store for a function that reads all values of a group, and the function over a view of them."""
    found: list[exp.Expr] = []
    lifted = _lift(call.function.copy(), found)
    inner = lifted.this if isinstance(lifted, exp.WithinGroup) else lifted
    row = row_of(inner)
    listed = row is not None and row.ordered
    ordered = listed and not call.distinct
    single = len(found) == 1 or listed
    nothing = [not_null(found[0])] if single and found else []
    if isinstance(inner, exp.Count):
        nothing = [not_null(v) for v in found]
    values = Values(tuple(found), every(call.condition, *nothing), ordered)

    def read(view: str) -> exp.Expr:
        columns = {c.name: column(view, c) for c in (*values.columns, Column(COUNT, pa.int64()))}
        return _shaped(_placed(lifted.copy(), columns), columns)

    return values, read


def _lift(node: exp.Expr, found: list[exp.Expr]) -> exp.Expr:
    """Returns the function with each expression over columns replaced by the number of its value."""
    for key, child in list(node.args.items()):
        if isinstance(child, exp.Expr):
            node.set(key, _lifted(child, found))
        elif isinstance(child, list):
            node.set(key, [_lifted(c, found) if isinstance(c, exp.Expr) else c for c in child])
    return node


def _lifted(node: exp.Expr, found: list[exp.Expr]) -> exp.Expr:
    if isinstance(node, _HOLDERS):
        return _lift(node, found)
    if not node.find(exp.Column):
        return node
    if node not in found:
        found.append(node)
    return exp.Placeholder(this=f"v{found.index(node)}")


def _placed(node: exp.Expr, columns: dict[str, exp.Column]) -> exp.Expr:
    for place in list(node.find_all(exp.Placeholder)):
        place.replace(columns[str(place.this)].copy())
    return node


def _shaped(function: exp.Expr, columns: dict[str, exp.Column]) -> exp.Expr:
    """Returns the function with the order, or the choice among ties, that makes it independent of the split into
    batches.
    """
    inner = function.this if isinstance(function, exp.WithinGroup) else function
    if isinstance(inner, exp.Mode):
        return _mode(function, columns)
    if isinstance(inner, exp.ArrayUniqueAgg) or (
        isinstance(inner, exp.ArrayAgg) and isinstance(inner.this, exp.Distinct)
    ):
        return function if _is_unordered(type_of(argument(inner))) else exp.ArraySort(this=function)
    if isinstance(inner, exp.GroupConcat) and isinstance(inner.this, exp.Distinct):
        inner.set("this", _order(inner.this, [], argument(inner)))
    elif SEQUENCE in columns:
        given = inner.this if isinstance(inner.this, exp.Order) else None
        value = given.this if given is not None else inner.this
        orders = list(given.expressions) if given is not None else []
        inner.set("this", _order(value, orders, columns[SEQUENCE]))
    return function


def _order(value: exp.Expr, orders: Sequence[exp.Expr], last: exp.Expr) -> exp.Order:
    by = [*(o.copy() for o in orders), exp.Ordered(this=last.copy(), nulls_first=True)]
    return exp.Order(this=value.copy(), expressions=by)


def _mode(function: exp.Expr, columns: dict[str, exp.Column]) -> exp.Expr:
    """Returns the most frequent value; of several, the least, or the greatest if the order is descending."""
    value, count = columns["v0"], columns[COUNT]
    down = isinstance(function, exp.WithinGroup) and bool(function.expression.expressions[0].args.get("desc"))
    if down:
        return exp.ArgMax(this=value.copy(), expression=struct([("n", count), ("v", value)]))
    return exp.ArgMin(this=value.copy(), expression=struct([("n", exp.Neg(this=count)), ("v", value)]))


def _is_unordered(dtype: pa.DataType | None) -> bool:
    """Returns whether values of a type cannot be sorted: maps, and types that contain them."""
    if dtype is None or pa.types.is_map(dtype):
        return True
    if pa.types.is_struct(dtype):
        return any(_is_unordered(f.type) for f in dtype)
    return pa.types.is_list(dtype) and _is_unordered(dtype.value_type)
