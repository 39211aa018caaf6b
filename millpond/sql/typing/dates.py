"""Result types of functions of dates and times."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.sql.nodes import WindowStart
from millpond.sql.typing.coercion import BIGINT, DATE, INT, STRING
from millpond.sql.typing.literals import unit_name
from millpond.sql.typing.rule import Of, Rule, always, like_argument, mismatch, visit
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ


def moved(node: exp.Expr, of: Of) -> pa.DataType | None:
    """DATEADD(unit, n, x), TIMESTAMPADD: a TIMESTAMP, also of a DATE; TIMESTAMP_NTZ stays itself."""
    visit(node, of)
    a = of(node.this)
    return TIMESTAMP if a in (DATE, STRING, TIMESTAMP) else a


def window_start(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.this)
    if a is None or a in (TIMESTAMP, TIMESTAMP_NTZ):
        return a
    raise mismatch("a window", a, hint="its time is a TIMESTAMP: CAST(… AS TIMESTAMP)")


def extracted(node: exp.Expr, of: Of) -> pa.DataType | None:
    of(node.expression)
    return pa.decimal128(8, 6) if unit_name(node.this) in ("SECOND", "SEC") else INT


def date_part(node: exp.Expr, of: Of) -> pa.DataType | None:
    """DATE_PART('field', x) is EXTRACT(field FROM x)."""
    field, value = node.expressions
    if not isinstance(field, exp.Literal):
        return None
    return extracted(exp.Extract(this=exp.Var(this=field.name), expression=value.copy()), of)


def date_difference(node: exp.Expr, of: Of) -> pa.DataType | None:
    visit(node, of)
    return BIGINT if node.args.get("unit") is not None else INT


_FIELDS = (
    exp.Year,
    exp.Month,
    exp.Day,
    exp.DayOfMonth,
    exp.DayOfWeek,
    exp.DayOfYear,
    exp.Quarter,
    exp.WeekOfYear,
    exp.Hour,
    exp.Minute,
    exp.Second,
    exp.UnixDate,
)

RULES: dict[type[exp.Expr], Rule] = {
    WindowStart: window_start,
    **dict.fromkeys(_FIELDS, always(INT)),
    exp.TsOrDsAdd: always(DATE),
    exp.TsOrDsToDate: always(DATE),
    exp.AddMonths: always(DATE),
    exp.LastDay: always(DATE),
    exp.NextDay: always(DATE),
    exp.DateTrunc: always(DATE),
    exp.DateFromUnixDate: always(DATE),
    exp.CurrentDate: always(DATE),
    exp.CurrentTimestamp: always(TIMESTAMP),
    exp.StrToTime: always(TIMESTAMP),
    exp.TimestampTrunc: always(TIMESTAMP),
    exp.TimestampAdd: moved,
    exp.DateDiff: date_difference,
    exp.TimestampDiff: always(BIGINT),
    exp.Extract: extracted,
    exp.StrToUnix: always(BIGINT),
    exp.UnixSeconds: always(BIGINT),
    exp.UnixMillis: always(BIGINT),
    exp.UnixMicros: always(BIGINT),
    exp.TimeStrToTime: like_argument(),
}

NAMED: dict[str, Rule] = {
    "WEEKDAY": always(INT),
    "DATE_PART": date_part,
    "MAKE_DATE": always(DATE),
    "NOW": always(TIMESTAMP),
    "TIMESTAMP_SECONDS": always(TIMESTAMP),
    "TIMESTAMP_MILLIS": always(TIMESTAMP),
    "TIMESTAMP_MICROS": always(TIMESTAMP),
}
