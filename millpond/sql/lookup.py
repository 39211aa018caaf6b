"""Recognises lookups: queries by equal values in columns of one table, with simple tests, columns or simple
aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.lookup import Lookup, Output, RowFunction
from millpond.predicates import Compare, Given, OneOf, Predicate, all_of
from millpond.records.values import Unfit
from millpond.sql.bind import PARAMETER
from millpond.sql.conjuncts import conjuncts
from millpond.sql.functions import folds
from millpond.sql.predicates import PredicateReader
from millpond.sql.resolve import Resolved
from millpond.sql.rowwise import row_function
from millpond.sql.template import name_of
from millpond.types import Column, Schema

_FLOAT_WHOLE = 1 << 24


class _Other(Exception):
    """Signals that the query is not a lookup."""


def lookup_of(query: Resolved, values: Sequence[Any]) -> Lookup | None:
    """Returns the lookup for a query whose literals were bound from parameters ``__v0``, … with such values; None for
    any other query.
    """
    try:
        return _Reading(query, values).lookup()
    except _Other:
        return None


def key_values(
    query: Resolved, values: Sequence[Any], key: Sequence[str]
) -> tuple[tuple[Given, ...], Sequence[Predicate]] | None:
    """Returns the values that a query requires the key columns of its one table to equal, and its other conditions;
    None if it reads in another way.
    """
    reading = _Reading(query, values)
    try:
        equal, rest = reading.conditions(reading.select())
        names = [reading.column(exp.column(name)) for name in key]
        rest = [*rest, *(test for name, test in equal.items() if name not in names)]
        return tuple(equal[name].value for name in names), rest
    except (_Other, KeyError):
        return None


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
            raise _Other  # the order does not matter for one row
        outputs, row = self.outputs(select)
        among = None
        if not equal:
            among = next((t for t in rest if isinstance(t, OneOf) and _by_index(t)), None)
            rest = [t for t in rest if t is not among]
        limit = self.limit(select)
        if (not equal and among is None) or len(self.used) != len(self.kinds):
            raise _Other
        if limit is not None and not row and any(o.function for o in outputs):
            raise _Other
        arrow, table = self.query.schema.arrow(), self.query.inputs[0].relation.name
        return Lookup(
            table, tuple(equal.values()), all_of(*rest), outputs, arrow, len(self.kinds), among, limit, row
        )

    def outputs(self, select: exp.Select) -> tuple[tuple[Output, ...], RowFunction | None]:
        """Returns columns and aggregates, or what builds the outputs from a record."""
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
        """Returns the query, if it is a SELECT … FROM one table WHERE …, with at most the clauses in ``more``."""
        select = self.query.expression
        if not isinstance(select, exp.Select) or len(self.query.inputs) != 1 or not self.query.schema.known:
            raise _Other
        needed = {"expressions", "from_", "where"}
        if not needed <= {name for name, value in select.args.items() if value} <= needed | set(more):
            raise _Other
        relation = self.query.inputs[0].relation
        source = select.args["from_"].this
        if relation.kind != "table" or relation.at is not None or not isinstance(source, exp.Table):
            raise _Other
        if {name for name, value in source.args.items() if value} != {"this", "alias"}:
            raise _Other
        self.schema = relation.schema
        return select

    def conditions(self, select: exp.Select) -> tuple[dict[str, Compare], list[Predicate]]:
        """Returns the columns that must equal a value, and all other tests."""
        equal: dict[str, Compare] = {}
        rest: list[Predicate] = []
        reader = PredicateReader(self.find, self.given)
        for part in conjuncts(select.args["where"].this):
            test, whole = reader.read(part)
            if test is None or not whole:
                raise _Other
            if (
                isinstance(test, Compare)
                and test.operator == "="
                and isinstance(test.value, Given)
                and test.column not in equal
            ):
                equal[test.column] = test
            else:
                rest.append(test)
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

    def given(self, node: exp.Expr, column: Column) -> Given | bool | None:
        """Returns what a column is compared with: a value supplied at run time, or TRUE or FALSE."""
        if isinstance(node, exp.Boolean) and PARAMETER not in node.meta:
            return bool(node.this) if pa.types.is_boolean(column.type) else None
        negative = False
        while isinstance(node, exp.Paren | exp.Neg) and PARAMETER not in node.meta:
            negative ^= isinstance(node, exp.Neg)
            node = node.this
        at = self.numbers.get(str(node.meta.get(PARAMETER)))
        if at is None:
            return None
        self.used.add(at)
        kind = self.kinds[at]
        found = conversion(column.type, kind)
        if found is None or (negative and kind not in (int, float, Decimal)):
            return None
        convert = found[0]
        if negative:
            inner = convert or (lambda value: value)
            return Given(at, kind, lambda value: inner(-value))
        return Given(at, kind, convert)

    def find(self, node: exp.Expr) -> Column | None:
        column = self.schema.find(node.name) if isinstance(node, exp.Column) else None
        return None if column is None or column.type is None else column

    def column(self, node: exp.Expr) -> str:
        column = self.find(node)
        if column is None:
            raise _Other
        return column.name

    def type(self, column: str) -> pa.DataType:
        found = self.schema.find(column)
        if found is None or found.type is None:
            raise _Other
        return found.type


def _by_index(test: OneOf) -> bool:
    return not test.negated and all(isinstance(v, Given) for v in test.values)


Convert = Callable[[Any], Any]


def conversion(dtype: pa.DataType, kind: type) -> tuple[Convert | None] | None:
    """Returns how to compare a Python value with the values of a column as Spark SQL does; None if that is not known
    here. The function raises Unfit for values that Spark would compare in another way, or refuse. Ints are below 2⁶³.
    """
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
    """Returns a decimal that has a common type with all integers. Raises Unfit for others."""
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and -18 <= exponent <= 0 and value.adjusted() < 18:
        return value
    raise Unfit("a decimal of another form")


def _within(value: Any, precision: int, scale: int) -> Any:
    """Returns a number whose common type with DECIMAL(precision, scale) can represent both exactly. Raises Unfit for
    others.
    """
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
