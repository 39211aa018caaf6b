"""Result types of aggregates and window functions."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.sql.typing import decimals
from millpond.sql.typing.coercion import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    DURATION,
    INT,
    NULL,
    STRING,
    is_decimal,
    is_integer,
    is_map,
    is_numeric,
    list_of,
)
from millpond.sql.typing.conditionals import branches
from millpond.sql.typing.rule import Of, Rule, always, mismatch, visit


def argument(node: exp.Expr) -> exp.Expr:
    """The value an aggregate runs over, without DISTINCT and ORDER BY."""
    inner: exp.Expr = node.this
    while isinstance(inner, exp.Distinct | exp.Order | exp.IgnoreNulls | exp.RespectNulls):
        inner = inner.expressions[0] if isinstance(inner, exp.Distinct) else inner.this
    return inner


def number(node: exp.Expr, of: Of, name: str) -> pa.DataType | None:
    """The type of a numeric argument. A string is refused, where Spark would cast every row to DOUBLE."""
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


def double(name: str) -> Rule:
    """An aggregate over numbers that gives a DOUBLE."""

    def rule(node: exp.Expr, of: Of) -> pa.DataType | None:
        visit(node, of)
        a = number(node, of, name)
        return None if a is None or a == DURATION else DOUBLE

    return rule


def same(node: exp.Expr, of: Of) -> pa.DataType | None:
    return of(argument(node))


def ordered(node: exp.Expr, of: Of) -> pa.DataType | None:
    """MIN, MAX: the type of the argument, which must have an order."""
    a = of(argument(node))
    if a is not None and is_map(a):
        raise mismatch(node.key.upper(), a)
    return a


def collected(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(argument(node))
    return None if a is None else list_of(a)


def neighbour(node: exp.Expr, of: Of) -> pa.DataType | None:
    default = node.args.get("default")
    return of(node.this) if default is None else branches(node.key.upper(), [node.this, default], of)


def within(node: exp.Expr, of: Of) -> pa.DataType | None:
    """PERCENTILE_CONT/DISC(p) and MODE() WITHIN GROUP (ORDER BY x)."""
    if isinstance(node.this, exp.PercentileCont | exp.PercentileDisc):
        a = of(node.expression.expressions[0].this)
        if a is not None and not is_numeric(a):
            raise mismatch(node.this.key.upper(), a)
        return None if a is None else DOUBLE
    if isinstance(node.this, exp.Mode):
        return of(node.expression.expressions[0].this)
    return of(node.this)


def inner(node: exp.Expr, of: Of) -> pa.DataType | None:
    return of(node.this)


def filtered(node: exp.Expr, of: Of) -> pa.DataType | None:
    of(node.expression.this)
    return of(node.this)


_REGRESSION = (
    exp.RegrIntercept,
    exp.RegrR2,
    exp.RegrSlope,
    exp.RegrSxx,
    exp.RegrSxy,
    exp.RegrSyy,
)

RULES: dict[type[exp.Expr], Rule] = {
    exp.Count: always(BIGINT),
    exp.CountIf: always(BIGINT),
    exp.ApproxDistinct: always(BIGINT),
    exp.RegrCount: always(BIGINT),
    exp.Sum: total,
    exp.Avg: mean,
    exp.Min: ordered,
    exp.Max: ordered,
    exp.Stddev: double("STDDEV"),
    exp.StddevSamp: double("STDDEV_SAMP"),
    exp.StddevPop: double("STDDEV_POP"),
    exp.Variance: double("VARIANCE"),
    exp.VariancePop: double("VAR_POP"),
    exp.Skewness: double("SKEWNESS"),
    exp.Kurtosis: double("KURTOSIS"),
    exp.Median: double("MEDIAN"),
    exp.Quantile: double("PERCENTILE"),
    exp.Corr: double("CORR"),
    exp.CovarPop: double("COVAR_POP"),
    exp.CovarSamp: double("COVAR_SAMP"),
    exp.RegrAvgx: lambda node, of: mean(exp.Avg(this=node.expression.copy()), of),
    exp.RegrAvgy: lambda node, of: mean(exp.Avg(this=node.this.copy()), of),
    **{kind: double(kind.sql_name()) for kind in _REGRESSION},
    exp.ApproxQuantile: same,
    exp.ArgMax: same,
    exp.ArgMin: same,
    exp.Mode: same,
    exp.AnyValue: same,
    exp.First: same,
    exp.Last: same,
    exp.FirstValue: same,
    exp.LastValue: same,
    exp.NthValue: same,
    exp.BitwiseAndAgg: same,
    exp.BitwiseOrAgg: same,
    exp.BitwiseXorAgg: same,
    exp.ArrayAgg: collected,
    exp.ArrayUniqueAgg: collected,
    exp.GroupConcat: always(STRING),
    exp.LogicalAnd: always(BOOLEAN),
    exp.LogicalOr: always(BOOLEAN),
    exp.RowNumber: always(INT),
    exp.Rank: always(INT),
    exp.DenseRank: always(INT),
    exp.Ntile: always(INT),
    exp.PercentRank: always(DOUBLE),
    exp.CumeDist: always(DOUBLE),
    exp.Lag: neighbour,
    exp.Lead: neighbour,
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
