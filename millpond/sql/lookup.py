"""Which queries are lookups: equal values in columns of one table, simple tests, columns or simple aggregates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.lookup import (
    Compare,
    Either,
    Every,
    Given,
    Holds,
    IsNull,
    Lookup,
    OneOf,
    Output,
    RowFunction,
    Test,
)
from millpond.records.values import Unfit
from millpond.sql.bind import PARAMETER
from millpond.sql.conjuncts import conjuncts
from millpond.sql.functions import folds
from millpond.sql.resolve import Resolved
from millpond.sql.rowwise import row_function
from millpond.sql.template import name_of
from millpond.types import Schema

_OPERATORS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_FLOAT_WHOLE = 1 << 24


class _Other(Exception):
    """The query is not a lookup."""


def lookup_of(query: Resolved, values: Sequence[Any]) -> Lookup | None:
    """The lookup that a query is, whose literals were bound from parameters ``__v0``, … with such values; None for
    any other query."""
    try:
        return _Reading(query, values).lookup()
    except _Other:
        return None


def key_values(
    query: Resolved, values: Sequence[Any], key: Sequence[str]
) -> tuple[tuple[Given, ...], Sequence[Test]] | None:
    """The values that a query wants the key columns of its one table to equal, and what else it asks for; None if it
    reads in another way."""
    reading = _Reading(query, values)
    try:
        equal, rest = reading.conditions(reading.select())
        names = [reading.column(exp.column(name)) for name in key]
        rest = [*rest, *(test for name, test in equal.items() if name not in names)]
        return tuple(equal[name].value for name in names), rest
    except (_Other, KeyError):
        return None


def _listed(test: Test) -> Test:
    """``a = 1 OR a = 2`` as ``a IN (1, 2)``."""
    if isinstance(test, Either):
        parts = [_listed(p) for p in test.parts]
        columns = {p.column for p in parts if isinstance(p, Compare | OneOf)}
        values: list[Given] = []
        for part in parts:
            if isinstance(part, Compare) and part.operator == "=":
                values.append(part.value)
            elif isinstance(part, OneOf) and not part.negated:
                values += part.values
            else:
                return test
        return OneOf(columns.pop(), tuple(values)) if len(columns) == 1 else test
    return test


class _Reading:
    def __init__(self, query: Resolved, values: Sequence[Any]):
        self.query = query
        self.values = values
        self.kinds = [type(v) for v in values]
        self.numbers = {name_of(at): at for at in range(len(values))}
        self.used: set[int] = set()
        self.schema = Schema(())

    def lookup(self) -> Lookup:
        select = self.select("limit", "order")
        equal, rest = self.conditions(select)
        if select.args.get("order") and not all(name in equal for name in self.schema.key or ("",)):
            raise _Other  # of one row the order does not matter
        outputs, row = self.outputs(select)
        among = None
        if not equal:
            among = next((t for t in rest if isinstance(t, OneOf) and not t.negated), None)
            rest = [t for t in rest if t is not among]
        limit = self.limit(select)
        if (not equal and among is None) or len(self.used) != len(self.kinds):
            raise _Other
        if limit is not None and not row and any(o.function for o in outputs):
            raise _Other
        more = None if not rest else rest[0] if len(rest) == 1 else Every(tuple(rest))
        arrow, table = self.query.schema.arrow(), self.query.inputs[0].relation.name
        return Lookup(table, tuple(equal.values()), more, outputs, arrow, len(self.kinds), among, limit, row)

    def outputs(self, select: exp.Select) -> tuple[tuple[Output, ...], RowFunction | None]:
        """Columns and aggregates, or what makes the outputs of a record."""
        try:
            return tuple(self.output(o) for o in select.expressions), None
        except _Other:
            names = self.query.schema.names
            made = dict(zip(names, select.expressions, strict=True))
            different = len({name.lower() for name in names}) == len(names)
            row = row_function(made, self.query.schema, self.values, stored=False) if different else None
            if row is None:
                raise
            for node in (n for o in select.expressions for n in o.walk()):
                self.used.update(
                    at for at in [self.numbers.get(str(node.meta.get(PARAMETER)))] if at is not None
                )
            return (), row

    def select(self, *more: str) -> exp.Select:
        """The query, if it is a SELECT … FROM one table WHERE …, and perhaps what ``more`` names."""
        select = self.query.expression
        if not isinstance(select, exp.Select) or len(self.query.inputs) != 1 or not self.query.schema.known:
            raise _Other
        needed = {"expressions", "from_", "where"}
        if not needed <= {name for name, value in select.args.items() if value} <= needed | set(more):
            raise _Other
        relation = self.query.inputs[0].relation
        source = select.args["from_"].this
        if relation.kind != "table" or not isinstance(source, exp.Table):
            raise _Other
        if {name for name, value in source.args.items() if value} != {"this", "alias"}:
            raise _Other
        self.schema = relation.schema
        return select

    def conditions(self, select: exp.Select) -> tuple[dict[str, Compare], list[Test]]:
        """The columns that are to equal a value, and all other tests."""
        equal: dict[str, Compare] = {}
        rest: list[Test] = []
        for part in conjuncts(select.args["where"].this):
            test = self.test(part, True)
            if isinstance(test, Compare) and test.operator == "=" and test.column not in equal:
                equal[test.column] = test
            else:
                rest.append(_listed(test))
        return equal, rest

    def limit(self, select: exp.Select) -> Given | None:
        limit = select.args.get("limit")
        if limit is None:
            return None
        at = self.numbers.get(str(limit.expression.meta.get(PARAMETER))) if limit.expression else None
        if at is None or self.kinds[at] is not int or not isinstance(limit.expression, exp.Literal):
            raise _Other
        self.used.add(at)
        return Given(at, int)

    def output(self, node: exp.Expr) -> Output:
        if not isinstance(node, exp.Alias):
            raise _Other
        value = node.this
        if isinstance(value, exp.Column):
            return Output(node.alias, self.column(value))
        name = folds().get(type(value))
        if name is None or {n for n, v in value.args.items() if v and n != "big_int"} != {"this"}:
            raise _Other
        if name == "count" and isinstance(value.this, exp.Star):
            return Output(node.alias, None, name)
        if not isinstance(value.this, exp.Column):
            raise _Other
        column = self.column(value.this)
        dtype, t = self.type(column), pa.types
        number = t.is_integer(dtype) or t.is_floating(dtype) or t.is_decimal128(dtype)
        ordered = number or t.is_string(dtype) or t.is_date(dtype) or t.is_timestamp(dtype)
        if not (name == "count" or number or (name in ("min", "max") and ordered)):
            raise _Other
        if name == "avg" and t.is_decimal128(dtype) and dtype.precision > 34:
            raise _Other
        return Output(node.alias, column, name)

    def test(self, node: exp.Expr, wanted: bool) -> Test:
        """The test that holds where the condition is TRUE, or, if not ``wanted``, where it is FALSE."""
        if isinstance(node, exp.Paren) and PARAMETER not in node.meta:
            return self.test(node.this, wanted)
        if isinstance(node, exp.Not):
            return self.test(node.this, not wanted)
        if isinstance(node, exp.And | exp.Or):
            parts = self.test(node.left, wanted), self.test(node.right, wanted)
            return Every(parts) if isinstance(node, exp.And) == wanted else Either(parts)
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return IsNull(self.column(node.this), negated=not wanted)
        if isinstance(node, exp.Between):
            column = self.column(node.this)
            low, high = self.given(node.args["low"], column), self.given(node.args["high"], column)
            if wanted:
                return Every((Compare(column, ">=", low), Compare(column, "<=", high)))
            return Either((Compare(column, "<", low), Compare(column, ">", high)))
        if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
            column = self.column(node.this)
            values = tuple(self.given(v, column) for v in node.expressions)
            return OneOf(column, values, negated=not wanted)
        operator = _OPERATORS.get(type(node))
        if operator is not None:
            return self.comparison(node, operator if wanted else _OPPOSITE[operator])
        if isinstance(node, exp.Column):
            return self.holds(node, wanted)
        raise _Other

    def comparison(self, node: exp.Expr, operator: str) -> Test:
        left, right = node.args["this"], node.args["expression"]
        if isinstance(right, exp.Column):
            left, right, operator = right, left, _TURNED[operator]
        if isinstance(right, exp.Boolean) and operator in ("=", "<>"):
            return self.holds(left, bool(right.this) == (operator == "="))
        column = self.column(left)
        return Compare(column, operator, self.given(right, column))

    def holds(self, node: exp.Expr, wanted: bool) -> Test:
        column = self.column(node)
        if not pa.types.is_boolean(self.type(column)):
            raise _Other
        return Holds(column, wanted)

    def given(self, node: exp.Expr, column: str) -> Given:
        negative = False
        while isinstance(node, exp.Paren | exp.Neg) and PARAMETER not in node.meta:
            negative ^= isinstance(node, exp.Neg)
            node = node.this
        at = self.numbers.get(str(node.meta.get(PARAMETER)))
        if at is None:
            raise _Other
        self.used.add(at)
        kind = self.kinds[at]
        found = conversion(self.type(column), kind)
        if found is None or (negative and kind not in (int, float, Decimal)):
            raise _Other
        convert = found[0]
        if negative:
            inner = convert or (lambda value: value)
            return Given(at, kind, lambda value: inner(-value))
        return Given(at, kind, convert)

    def column(self, node: exp.Expr) -> str:
        column = self.schema.find(node.name) if isinstance(node, exp.Column) else None
        if column is None:
            raise _Other
        return column.name

    def type(self, column: str) -> pa.DataType:
        found = self.schema.find(column)
        if found is None or found.type is None:
            raise _Other
        return found.type


Convert = Callable[[Any], Any]


def conversion(dtype: pa.DataType, kind: type) -> tuple[Convert | None] | None:
    """How a Python value is compared with the values of a column as Spark SQL compares them; None if that is not
    known here. The function raises Unfit for values that Spark would compare in another way, or refuse. Ints are below
    2⁶³."""
    t = pa.types
    if t.is_string(dtype):
        return (None,) if kind is str else None
    if t.is_integer(dtype):
        return (None,) if kind is int else (_decimal,) if kind is Decimal else None
    if t.is_decimal128(dtype):
        if kind in (int, Decimal):
            return (lambda value: _within(value, dtype.precision, dtype.scale),)
        return None
    if t.is_floating(dtype):
        if kind is int:
            return (float if t.is_float64(dtype) else _short_float,)
        return (_float,) if kind in (float, Decimal) else None
    if t.is_date(dtype):
        return (None,) if kind is date else (_date,) if kind is str else None
    if t.is_timestamp(dtype) and kind is datetime:
        return (_aware,) if dtype.tz else (_naive,)
    return None


def _short_float(value: int) -> float:
    if -_FLOAT_WHOLE <= value <= _FLOAT_WHOLE:
        return float(value)
    raise Unfit("a whole number that a FLOAT does not hold")


def _decimal(value: Decimal) -> Decimal:
    """A decimal that has a common type with all integers."""
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and -18 <= exponent <= 0 and value.adjusted() < 18:
        return value
    raise Unfit("a decimal of another form")


def _within(value: Any, precision: int, scale: int) -> Any:
    """A number whose common type with DECIMAL(precision, scale) holds both whole."""
    if type(value) is int:
        fits = max(precision - scale, 20) + scale <= 38
    else:
        fraction = -int(_decimal(value).as_tuple().exponent)
        fits = max(precision - scale, value.adjusted() + 1) + max(scale, fraction) <= 38
    if not fits:
        raise Unfit("a decimal without a common type")
    return value


def _float(value: Any) -> float:
    found = float(value)
    if isfinite(found) and (type(value) is float or _decimal(value) is value):
        return found
    raise Unfit("not a finite number")


def _date(text: str) -> date:
    if len(text) == 10 and text[4] == text[7] == "-" and text.isascii():
        try:
            return date.fromisoformat(text)
        except ValueError:
            pass
    raise Unfit("a date in another spelling")


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise Unfit("a time without a zone")
    return value


def _naive(value: datetime) -> datetime:
    if value.tzinfo is not None:
        raise Unfit("a time with a zone")
    return value
