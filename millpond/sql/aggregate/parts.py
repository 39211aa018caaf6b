"""Declares the functions that are merged from a few values: what each stores per group, how that is merged and read.

The rows of the table of functions refer to these. A function whose row names none is read from the values of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from millpond.sql.aggregate.find import Call
from millpond.sql.aggregate.nodes import cast, double, every, filtered, not_null, number, struct
from millpond.sql.typing import type_of
from millpond.sql.typing.aggregates import argument

Columns = Sequence[exp.Expr]
_BIGINT, _DOUBLE = pa.int64(), pa.float64()


@dataclass(frozen=True, slots=True)
class Value:
    """Describes one stored value: ``partial`` computes it over a batch; ``merge`` combines the values of several rows,
    given the columns of the part and then its centres.
    """

    partial: exp.Expr
    merge: Callable[[Columns], exp.Expr]
    dtype: pa.DataType


@dataclass(frozen=True, slots=True)
class Part:
    """Describes a function of the query: what it stores, and how it is read from the columns that store it.

    ``centres`` are pairs of a count and a mean among the values. ``merge`` gets the mean of all merged rows: sums of
    squares are numerically stable only around it.
    """

    values: tuple[Value, ...]
    final: Callable[[Columns], exp.Expr]
    centres: tuple[tuple[int, int], ...] = ()


Build = Callable[[Call, exp.Expr], Part]
"""(the call, the ``_seq`` of the stream) → its part."""
Lowered = tuple[exp.Expr, exp.Expr | None]
Lower = Callable[[exp.Expr, "exp.Expr | None"], Lowered]
"""(the function, its FILTER) → what is stored in its place."""


def _by(function: type[exp.Expr], index: int = 0) -> Callable[[Columns], exp.Expr]:
    return lambda columns: function(this=columns[index].copy())


def same(merge: type[exp.Expr]) -> Build:
    """Returns a part whose values are merged by a function and read unchanged."""

    def build(call: Call, seq: exp.Expr) -> Part:
        dtype = type_of(call.function)
        assert dtype is not None
        value = Value(filtered(call.function, call.condition), _by(merge), dtype)
        return Part((value,), lambda columns: columns[0])

    return build


def average(call: Call, seq: exp.Expr) -> Part:
    """Stores AVG as SUM and COUNT. Spark divides the same way."""
    item = argument(call.function)
    total = exp.Sum(this=item.copy())
    average, kept = type_of(call.function), type_of(total)
    assert average is not None and kept is not None

    def final(columns: Columns) -> exp.Expr:
        some = exp.Nullif(this=columns[1].copy(), expression=number(0, _BIGINT))
        return cast(exp.Div(this=columns[0], expression=some), average)

    count = Value(filtered(exp.Count(this=item.copy()), call.condition), _by(exp.Sum, 1), _BIGINT)
    return Part((Value(filtered(total, call.condition), _by(exp.Sum), kept), count), final)


def edge(*, last: bool) -> Build:
    """Returns the part for FIRST and LAST in the order of the stream."""
    ends, picks = (exp.Max, exp.ArgMax) if last else (exp.Min, exp.ArgMin)

    def build(call: Call, seq: exp.Expr) -> Part:
        item = argument(call.function)
        dtype = type_of(item)
        assert dtype is not None
        condition = every(call.condition, not_null(item) if call.ignore_nulls else None)
        place = Value(filtered(ends(this=seq.copy()), condition), _by(ends), _BIGINT)
        picked = filtered(picks(this=item.copy(), expression=seq.copy()), condition)
        value = Value(picked, lambda c: picks(this=c[1].copy(), expression=c[0].copy()), dtype)
        return Part((place, value), lambda columns: columns[1])

    return build


def picked(*, last: bool) -> Build:
    """Returns the part for MAX_BY and MIN_BY; of rows with an equal second argument, the first of the stream wins."""
    ends, picks = (exp.Max, exp.ArgMax) if last else (exp.Min, exp.ArgMin)

    def place(by: exp.Expr, seq: exp.Expr) -> exp.Expr:
        order = exp.Neg(this=seq.copy()) if last else seq.copy()
        return struct([("b", by), ("s", order)])

    def build(call: Call, seq: exp.Expr) -> Part:
        item, by = call.function.this, call.function.expression
        dtype, by_type = type_of(item), type_of(by)
        assert dtype is not None and by_type is not None
        condition = every(call.condition, not_null(by))

        def over(value: exp.Expr) -> exp.Expr:
            return filtered(picks(this=value.copy(), expression=place(by, seq)), condition)

        def merge(index: int) -> Callable[[Columns], exp.Expr]:
            return lambda c: filtered(
                picks(this=c[index].copy(), expression=place(c[0], c[1])), not_null(c[0])
            )

        highest = Value(filtered(ends(this=by.copy()), condition), _by(ends), by_type)
        values = (highest, Value(over(seq), merge(1), _BIGINT), Value(over(item), merge(2), dtype))
        return Part(values, lambda columns: columns[2])

    return build


def _spread(count: exp.Expr, left: exp.Expr, right: exp.Expr, centres: Columns) -> exp.Expr:
    """Returns the squares (or products) that rows of different means add to the sums inside them."""
    away = [
        exp.Paren(this=exp.Sub(this=m.copy(), expression=c.copy()))
        for m, c in zip((left, right), centres, strict=True)
    ]
    product = exp.Mul(this=exp.Mul(this=double(count.copy()), expression=away[0]), expression=away[1])
    return exp.Sum(this=product)


def _count(item: exp.Expr, condition: exp.Expr | None) -> Value:
    return Value(filtered(exp.Count(this=item.copy()), condition), _by(exp.Sum), _BIGINT)


def _mean(item: exp.Expr, condition: exp.Expr | None, centre: int) -> Value:
    """Returns the mean of all rows, which is the centre itself and the same in each row."""
    return Value(
        filtered(exp.Avg(this=double(item.copy())), condition),
        lambda columns: exp.Max(this=columns[centre].copy()),
        _DOUBLE,
    )


def _squares(
    function: exp.Expr, item: exp.Expr, condition: exp.Expr | None, merge: Callable[[Columns], exp.Expr]
) -> Value:
    counted = filtered(exp.Count(this=item.copy()), condition)
    around = exp.Mul(this=filtered(function, condition), expression=double(counted))
    return Value(around, merge, _DOUBLE)


def divided(total: exp.Expr, count: exp.Expr, less: int) -> exp.Expr:
    """Returns the total over the count, or over one less; NULL where the divisor is 0."""
    by: exp.Expr = exp.Sub(this=count.copy(), expression=number(1, _BIGINT)) if less else count.copy()
    some = exp.Nullif(this=double(by), expression=number(0, _DOUBLE))
    return exp.Div(this=total.copy(), expression=some)


def variance(less: int, *, root: bool) -> Build:
    """Returns the part for variances and deviations: count, mean and the sum of squares around the mean."""

    def build(call: Call, seq: exp.Expr) -> Part:
        item = argument(call.function)

        def merge(c: Columns) -> exp.Expr:
            inside = exp.Sum(this=c[2].copy())
            return exp.Add(this=inside, expression=_spread(c[0], c[1], c[1], (c[3], c[3])))

        def final(c: Columns) -> exp.Expr:
            found = divided(c[2], c[0], less)
            return _square_root(found) if root else found

        squares = exp.VariancePop(this=double(item.copy()))
        values = (
            _count(item, call.condition),
            _mean(item, call.condition, 3),
            _squares(squares, item, call.condition, merge),
        )
        return Part(values, final, ((0, 1),))

    return build


def related(read: Callable[[Columns], exp.Expr]) -> Build:
    """Returns the part for CORR and COVAR where both values are not NULL: count, two means, three sums around them."""

    def build(call: Call, seq: exp.Expr) -> Part:
        x, y = call.function.this, call.function.expression
        condition = every(call.condition, not_null(x), not_null(y))

        def merge(index: int, left: int, right: int) -> Callable[[Columns], exp.Expr]:
            def merged(c: Columns) -> exp.Expr:
                inside = exp.Sum(this=c[index].copy())
                between = _spread(c[0], c[left], c[right], (c[left + 5], c[right + 5]))
                return exp.Add(this=inside, expression=between)

            return merged

        both = exp.CovarPop(this=double(x.copy()), expression=double(y.copy()))
        values = (
            _count(x, condition),
            _mean(x, condition, 6),
            _mean(y, condition, 7),
            _squares(both, x, condition, merge(3, 1, 2)),
            _squares(exp.VariancePop(this=double(x.copy())), x, condition, merge(4, 1, 1)),
            _squares(exp.VariancePop(this=double(y.copy())), x, condition, merge(5, 2, 2)),
        )
        return Part(values, read, ((0, 1), (0, 2)))

    return build


def correlation(c: Columns) -> exp.Expr:
    spread = _square_root(exp.Mul(this=c[4].copy(), expression=c[5].copy()))
    return exp.Div(this=c[3].copy(), expression=exp.Nullif(this=spread, expression=number(0, _DOUBLE)))


def some(c: Columns, value: exp.Expr) -> exp.Expr:
    """Returns the value, if there is a row with both."""
    return exp.Case(
        ifs=[exp.If(this=exp.GT(this=c[0].copy(), expression=number(0, _BIGINT)), true=value.copy())]
    )


def slope(c: Columns) -> exp.Expr:
    """Computes REGR_… (y, x): of the columns of ``_related``, the second are of y, the third of x."""
    return exp.Div(this=c[3].copy(), expression=exp.Nullif(this=c[5].copy(), expression=number(0, _DOUBLE)))


def intercept(c: Columns) -> exp.Expr:
    return exp.Sub(this=c[1].copy(), expression=exp.Mul(this=slope(c), expression=c[2].copy()))


def determination(c: Columns) -> exp.Expr:
    squared = exp.Mul(this=correlation(c), expression=correlation(c))
    still = exp.EQ(this=c[5].copy(), expression=number(0, _DOUBLE))
    flat = exp.EQ(this=c[4].copy(), expression=number(0, _DOUBLE))
    nothing = cast(exp.Null(), _DOUBLE)
    return exp.Case(
        ifs=[exp.If(this=still, true=nothing), exp.If(this=flat, true=number(1, _DOUBLE))], default=squared
    )


def same_as(kind: type[exp.Expr]) -> Lower:
    """Treats FIRST_VALUE, ANY_VALUE and similar functions as another name of a function."""
    return lambda node, condition: (kind(this=node.this.copy()), condition)


def both_there(kind: type[exp.Expr], key: str) -> Lower:
    """Computes REGR_AVGX, REGR_COUNT and similar: a plain function of the rows where both values are not NULL."""

    def lower(node: exp.Expr, condition: exp.Expr | None) -> Lowered:
        where = every(condition, not_null(node.this), not_null(node.expression))
        return kind(this=node.args[key].copy()), where

    return lower


def exact_count(node: exp.Expr, condition: exp.Expr | None) -> Lowered:
    """Computes APPROX_COUNT_DISTINCT exactly: the values are stored in any case, so the exact number costs no more."""
    return exp.Count(this=exp.Distinct(expressions=[node.this.copy()])), condition


def _square_root(value: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="SQRT", expressions=[value])
