"""Derives result types of aggregates and window functions."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.errors import TypeMismatch
from millpond.sql.calls import called
from millpond.sql.typing import decimals
from millpond.sql.typing.coercion import (
    BIGINT,
    BINARY,
    DOUBLE,
    DURATION,
    NULL,
    STRING,
    is_decimal,
    is_integer,
    is_nested,
    is_numeric,
    list_of,
)
from millpond.sql.typing.conditionals import condition
from millpond.sql.typing.implicit import DATETIMES, assignable, has_map, implicit, wanted
from millpond.sql.typing.operators import plain_number
from millpond.sql.typing.rule import Of, Rule, mismatch, visit


def argument(node: exp.Expr) -> exp.Expr:
    """Returns the value that an aggregate runs over, without DISTINCT and ORDER BY."""
    inner: exp.Expr = node.this
    while isinstance(inner, exp.Distinct | exp.Order | exp.IgnoreNulls | exp.RespectNulls):
        inner = inner.expressions[0] if isinstance(inner, exp.Distinct) else inner.this
    return inner


def number(node: exp.Expr, of: Of, name: str) -> pa.DataType | None:
    """Returns the type of a numeric argument. Refuses a string, where Spark would cast every row to DOUBLE."""
    a = of(argument(node))
    if a is None or is_numeric(a) or a in (NULL, DURATION):
        return a
    raise mismatch(name, a, hint="cast it to a number first" if a == STRING else None)


def total(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = number(node, of, "SUM")
    if a is None or a == DURATION:
        return a
    if is_decimal(a):
        return decimals.total(a)
    return BIGINT if is_integer(a) else DOUBLE


def mean(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = number(node, of, "AVG")
    if a is None or a == DURATION:
        return a
    return decimals.mean(a) if is_decimal(a) else DOUBLE


def mean_of(key: str) -> Rule:
    """Returns the rule for REGR_AVGX and REGR_AVGY: as AVG of one of the two arguments."""
    return lambda node, of: mean(exp.Avg(this=node.args[key].copy()), of)


def double(name: str) -> Rule:
    """Returns the rule for an aggregate over numbers that returns a DOUBLE."""

    def rule(node: exp.Expr, of: Of) -> pa.DataType | None:
        visit(node, of)
        a = number(node, of, name)
        return None if a is None or a == DURATION else DOUBLE

    return rule


def same(node: exp.Expr, of: Of) -> pa.DataType | None:
    visit(node, of)
    return of(argument(node))


def taking(expected: str, result: pa.DataType | None = None) -> Rule:
    """Returns the rule of an aggregate over values of one kind, which returns the same type unless another is given."""

    def rule(node: exp.Expr, of: Of) -> pa.DataType | None:
        a = same(node, of)
        if a is None:
            return result
        found = implicit(a, expected)
        if found is None:
            raise mismatch(_name(node), a, hint=f"it takes {wanted(expected)}")
        return result or found

    return rule


def _name(node: exp.Expr) -> str:
    """Returns the name of the function as called."""
    return (called(node) or node.key).upper()


def joined(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types LISTAGG: BINARY for BINARY."""
    a = same(node, of)
    if a is None:
        return None
    if is_nested(a):
        raise mismatch(_name(node), a, hint="it takes STRING or BINARY")
    return BINARY if a == BINARY else STRING


def shares(node: exp.Expr, share: exp.Expr | None, result: pa.DataType) -> pa.DataType:
    """Returns the type of a percentile: an array for an array of shares. Shares are literals from 0 to 1."""
    several = isinstance(share, exp.Array)
    for item in share.expressions if several and share is not None else [share]:
        written = plain_number(item) if item is not None else None
        if isinstance(item, exp.Null) or (item is not None and item.find(exp.Column)):
            raise TypeMismatch(f"the share of {_name(node)} is not written out", hint="it is from 0 to 1")
        if written is not None and not 0 <= float(written.rstrip("DFBLSYdfblsy")) <= 1:
            raise TypeMismatch(f"{written} is no share for {_name(node)}", hint="it is from 0 to 1")
    return list_of(result) if several else result


def percentile(node: exp.Expr, of: Of) -> pa.DataType | None:
    found = double("PERCENTILE")(node, of)
    return None if found is None else shares(node, node.args.get("quantile"), found)


def distinct_count(node: exp.Expr, of: Of) -> pa.DataType | None:
    same(node, of)
    error = node.args.get("accuracy")
    if error is not None and (not isinstance(error, exp.Literal) or error.is_string or is_integer(of(error))):
        raise TypeMismatch(
            "the error of APPROX_COUNT_DISTINCT is a fraction that is written out", hint="write 0.05"
        )
    return BIGINT


def approximate(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = same(node, of)
    if a is not None and not (is_numeric(a) or a in (NULL, DURATION, *DATETIMES)):
        raise mismatch(_name(node), a, hint="cast it to a number first" if a == STRING else None)
    found = DOUBLE if a == NULL else a
    return None if found is None else shares(node, node.args.get("quantile"), found)


def ordered(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types MIN and MAX: the type of the argument, which must be orderable."""
    a = same(node, of)
    if a is not None and has_map(a):
        raise mismatch(_name(node), a)
    return a


def by_an_order(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types MIN_BY and MAX_BY: the type of the value; what they order by must be orderable."""
    order = of(node.expression)
    if order is not None and has_map(order):
        raise mismatch(_name(node), order)
    return same(node, of)


def collected(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = same(node, of)
    if a is not None and isinstance(node, exp.ArrayUniqueAgg) and has_map(a):
        raise mismatch(_name(node), a)
    return None if a is None else list_of(a)


def neighbour(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types LAG and LEAD: the type of their value; a default is cast to it."""
    default, own = node.args.get("default"), of(node.this)
    given = of(default) if default is not None else None
    if own is None or given is None:
        return own if default is None else None
    if given != STRING and not assignable(given, own):
        raise mismatch(node.key.upper(), own, given)
    return own


def within(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types PERCENTILE_CONT/DISC(p) and MODE() WITHIN GROUP (ORDER BY x)."""
    if isinstance(node.this, exp.PercentileCont | exp.PercentileDisc):
        if len(node.expression.expressions) != 1:
            raise TypeMismatch(f"{_name(node.this)} takes one order: WITHIN GROUP (ORDER BY x)")
        a = of(node.expression.expressions[0].this)
        if a is None or a == DURATION:
            return None
        if not is_numeric(a) and a != NULL:
            raise mismatch(_name(node.this), a, hint="cast it to a number first" if a == STRING else None)
        return shares(node.this, node.this.this, DOUBLE)
    if isinstance(node.this, exp.Mode):
        return of(node.expression.expressions[0].this)
    return of(node.this)


def inner(node: exp.Expr, of: Of) -> pa.DataType | None:
    return of(node.this)


def filtered(node: exp.Expr, of: Of) -> pa.DataType | None:
    condition("FILTER", node.expression.this, of)
    return of(node.this)


RULES: dict[type[exp.Expr], Rule] = {
    exp.WithinGroup: within,
    exp.Window: inner,
    exp.Filter: filtered,
    exp.IgnoreNulls: inner,
    exp.RespectNulls: inner,
    exp.Distinct: lambda node, of: of(node.expressions[0]),
    exp.Order: inner,
    exp.Ordered: inner,
    exp.Where: inner,
}
