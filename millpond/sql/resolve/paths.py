"""Resolves paths with wildcards: as values, in comparisons and in aggregates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.errors import NotSupported, TypeMismatch, UnknownName, did_you_mean
from millpond.sql.dialect import Millpond
from millpond.sql.functions import folds
from millpond.sql.nodes import (
    AnyDepth,
    AnyValue,
    ArraySum,
    EachOnce,
    Element,
    FilteredValues,
    Index,
    Path,
    PathValues,
)
from millpond.sql.paths import ANY, DEEP, Step, Steps, element_type, is_json
from millpond.sql.scope import Scope
from millpond.sql.typing import type_of
from millpond.sql.typing.coercion import BIGINT, BOOLEAN, DOUBLE
from millpond.types import type_name

COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In, exp.Like, exp.ILike)
Head = tuple[exp.Expr, Steps]


def steps_of(nodes: Sequence[exp.Expr]) -> Steps:
    """Returns the steps of a path. Raises NotSupported for an index that is not a constant."""
    steps: list[Step] = []
    for node in nodes:
        if isinstance(node, AnyDepth):
            if steps[-1:] != [(DEEP, "")]:  # any number of levels, twice
                steps.append((DEEP, ""))
        elif isinstance(node, exp.Star) or (isinstance(node, Index) and isinstance(node.this, exp.Star)):
            steps.append((ANY, ""))
        elif isinstance(node, exp.Identifier):
            steps.append(("name", node.name))
        elif isinstance(node, Index) and isinstance(node.this, exp.Literal):
            steps.append(("name", node.this.name) if node.this.is_string else ("at", int(node.this.name)))
        else:
            raise NotSupported("an index in a path with wildcards is a number, a text or *")
    return tuple(steps)


def path_of(column: exp.Column) -> Path:
    """Returns ``a.*`` as a path, if a is not an input."""
    path = Path(expressions=[part.copy() for part in column.parts])
    return path.update_positions(column) if column.meta.get("start") is not None else path


def unknown_root(name: str, scope: Scope) -> UnknownName:
    """Returns the error for a path that does not begin at a column."""
    columns = list(dict.fromkeys(scope.names()))
    inputs = [alias for level in scope.around() for alias in level.inputs]
    return UnknownName(
        f'the path begins at "{name}", which is no column',
        hint=did_you_mean(name, [*columns, *inputs], f"columns: {', '.join(columns)}"),
    )


def row_heads(columns: list[exp.Expr], steps: Steps) -> list[Head]:
    """Returns the columns of a row and the steps from each, for a path that begins at the row."""
    (kind, _), rest = steps[0], steps[1:]
    if kind == ANY:
        return [(column, rest) for column in columns]
    heads: list[Head] = []
    if rest and rest[0][0] == "name":
        heads = [(c.copy(), rest[1:]) for c in columns if c.name.lower() == str(rest[0][1]).lower()]
    elif rest:
        heads = row_heads([c.copy() for c in columns], rest)
    return [*heads, *((column, steps) for column in columns)]


def values_of(path: exp.Expr, heads: list[Head], numbers: bool) -> PathValues:
    """Returns the array of the values that a path finds from these columns; in JSON text only the numbers, or all as
    text. Raises TypeMismatch.
    """
    typed = [(dtype, steps) for head, steps in heads if (dtype := type_of(head)) is not None]
    element = element_type(typed, numbers=numbers)
    node = PathValues(
        expressions=[head for head, _ in heads], text=exp.Literal.string(path.sql(dialect=Millpond))
    )
    node.meta["steps"] = [steps for _, steps in heads]
    node.meta["found"] = element is not None
    node.meta["json"] = is_json(typed)
    node.meta["dtype"] = pa.list_(DOUBLE if element is None else element)
    return node


def any_value(values: PathValues, element: Element, condition: exp.Expr) -> exp.Expr:
    """Returns a test whether the condition on the element is true for any of the values."""
    if not values.meta["found"]:
        return exp.false()
    element.meta["dtype"] = values.meta["dtype"].value_type
    node = AnyValue(this=values, variable=element.copy(), condition=condition)
    node.meta["dtype"] = BOOLEAN
    return node


def with_numbers(condition: exp.Expr, element: Element) -> bool:
    """Returns whether a comparison compares the element with a number."""
    t = pa.types
    for child in condition.iter_expressions():
        dtype = None if child is element else type_of(child)
        if dtype is not None and (t.is_integer(dtype) or t.is_floating(dtype) or t.is_decimal(dtype)):
            return True
    return False


def aggregate(node: exp.Expr, values: exp.Expr, *, distinct: bool) -> exp.Expr:
    """Returns COUNT, SUM, MIN, MAX or AVG over all values of all rows; ``values`` is the array of the values of a row.
    Raises TypeMismatch, or NotSupported for COUNT of several.
    """
    if node.args.get("expressions"):
        raise NotSupported("COUNT of a path and something else", hint="count them one by one")
    if isinstance(node, exp.Min | exp.Max):
        inner = exp.ArrayMin(this=values) if isinstance(node, exp.Min) else exp.ArrayMax(this=values)
        return type(node)(this=inner)
    once = EachOnce(this=exp.ArrayAgg(this=values.copy()))
    count: exp.Expr
    if distinct:
        count = _cast(exp.ArraySize(this=once), BIGINT)
    else:
        counted = exp.ArraySize(this=exp.ArrayCompact(this=values.copy()))
        count = exp.Coalesce(
            this=exp.Sum(this=_cast(counted, BIGINT)), expressions=[_cast(exp.Literal.number(0), BIGINT)]
        )
    if isinstance(node, exp.Count):
        return count
    element = values.meta["dtype"].value_type
    t, name = pa.types, type(node).__name__.upper()
    if not (t.is_integer(element) or t.is_floating(element) or t.is_decimal(element)):
        raise TypeMismatch(f"{name} takes numbers, the values of the path are {type_name(element)}")
    wanted, total_type = type_of(type(node)(this=_column(element))), type_of(exp.Sum(this=_column(element)))
    assert wanted is not None and total_type is not None
    if isinstance(node, exp.Avg) and not t.is_decimal(element):
        total_type = DOUBLE
    to = exp.DataType.build(type_name(total_type), dialect="spark")
    summed = ArraySum(this=once.copy() if distinct else values, to=to)
    total = summed if distinct else _cast(exp.Sum(this=summed), total_type)
    if isinstance(node, exp.Sum):
        return total
    return _cast(
        exp.Div(this=total, expression=exp.Nullif(this=count, expression=exp.Literal.number(0))), wanted
    )


def filtered(values: PathValues, node: FilteredValues) -> FilteredValues:
    """Returns the values that satisfy the condition of the node."""
    dtype = values.meta["dtype"]
    node.set("this", values)
    for element in node.find_all(Element):
        element.meta["dtype"] = dtype.value_type
    node.meta["dtype"] = dtype
    return node


def innermost(node: exp.Expr) -> exp.Expr:
    """Returns the aggregate in ``SUM(…) FILTER (…) OVER (…)``."""
    while isinstance(node, exp.Filter | exp.Window):
        node = node.this
    return node


def wrapped(lowered: exp.Expr, around: exp.Expr, mark: Element) -> exp.Expr:
    """Returns the result of an aggregate over a path, with FILTER and OVER around each of the aggregates in it;
    ``around`` has ``mark`` in the place of the aggregate.
    """
    root = exp.Paren(this=lowered)
    for function in [n for n in root.find_all(exp.AggFunc) if n.find_ancestor(exp.AggFunc) is None]:
        copy = around.copy()
        function.replace(copy)
        next(n for n in copy.find_all(Element) if n == mark).replace(function)
    return root


def _column(dtype: pa.DataType) -> exp.Column:
    column = exp.Column(this=exp.to_identifier("x"))
    column.meta["dtype"] = dtype
    return column


def _cast(value: exp.Expr, dtype: pa.DataType) -> exp.Expr:
    return exp.Cast(this=value, to=exp.DataType.build(type_name(dtype), dialect="spark"))


def or_null(node: exp.Dot) -> exp.Dot:
    """Makes a missing element NULL in ``users[0].name``, as in any path."""
    inner = node.this
    if (
        isinstance(inner, exp.Bracket)
        and len(inner.expressions) == 1
        and not isinstance(inner.this, exp.Null)
    ):
        index = inner.expressions[0]
        if isinstance(index, exp.Literal) and not index.is_string:
            node.set("this", exp.Anonymous(this="GET", expressions=[inner.this, index]))
    return node


def path_in(node: exp.Expr, is_input: Callable[[str], bool]) -> Path | FilteredValues | exp.Column | None:
    """Returns the path in a comparison or aggregate: a Path, its values that satisfy a condition, or ``a.*`` if a is
    not an input.
    """
    if isinstance(node, COMPARISONS):
        sides = [node.this, node.args.get("expression"), node.args.get("low"), node.args.get("high")]
    else:
        sides = [node.this] if type(node) in folds() else []
        if sides and isinstance(node.this, exp.Distinct):
            sides = list(node.this.expressions)
    for side in sides:
        if isinstance(side, Path | FilteredValues):
            return side
        if isinstance(side, exp.Column) and isinstance(side.this, exp.Star):
            if len(side.parts) > 2 or not is_input(side.parts[0].name):
                return side
    return None
