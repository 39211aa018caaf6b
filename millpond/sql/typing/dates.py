"""Derives result types of functions of dates and times."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.sql.nodes import WindowStart
from millpond.sql.typing.coercion import BIGINT, DATE, INT, NULL, STRING
from millpond.sql.typing.implicit import implicit, wanted
from millpond.sql.typing.rule import Of, Rule, mismatch
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ

_TIMES = (TIMESTAMP, TIMESTAMP_NTZ)


def _bring(name: str, node: exp.Expr, of: Of, expected: str, at: int) -> pa.DataType | None:
    """Returns the type that an argument is cast to; None if its own is unknown."""
    given = of(node)
    found = None if given is None else implicit(given, expected)
    if given is not None and found is None:
        raise mismatch(name, given, hint=f"argument {at} is {wanted(expected)}")
    return found


def moved(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types TIMESTAMPADD(unit, n, x): a TIMESTAMP, also of a DATE; TIMESTAMP_NTZ remains itself."""
    name = node.name.upper()
    _, amount, value = node.expressions
    _bring(name, amount, of, "bigint", 2)
    return _bring(name, value, of, "time", 3)


def days_later(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types DATE_ADD(date, days); with a unit it is TIMESTAMPADD."""
    if len(node.expressions) == 3:
        return moved(node, of)
    name = node.name.upper()
    _bring(name, node.expressions[0], of, "date", 1)
    _bring(name, node.expressions[1], of, "small", 2)
    return DATE


def difference(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types DATEDIFF(date, date); with a unit it is TIMESTAMPDIFF."""
    name, given = node.name.upper(), node.expressions
    unit = len(given) == 3
    for at, value in enumerate(given[-2:], 2 if unit else 1):
        _bring(name, value, of, "timestamp" if unit else "date", at)
    return BIGINT if unit else INT


def window_start(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.this)
    if a is None or a in _TIMES:
        return a
    raise mismatch("a window", a, hint="its time is a TIMESTAMP: CAST(… AS TIMESTAMP)")


def extracted(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types EXTRACT of a date or time; for intervals only Spark knows."""
    a = of(node.expression)
    if a not in (DATE, *_TIMES):
        return None
    unit = node.this.name.upper()
    return pa.decimal128(8, 6) if unit in ("SECOND", "SECONDS", "SEC", "SECS", "S") else INT


def date_part(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types DATE_PART('field', x) as EXTRACT(field FROM x)."""
    field, value = node.expressions
    if not isinstance(field, exp.Literal) or not field.is_string:
        return None
    return extracted(exp.Extract(this=exp.Var(this=field.name), expression=value.copy()), of)


def to_date(node: exp.Expr, of: Of) -> pa.DataType | None:
    return _converted(node, of, DATE, (STRING, NULL, DATE, *_TIMES))


def to_time(target: pa.DataType) -> Rule:
    """Returns the rule for TO_TIMESTAMP(x): a cast; with a format, only Spark knows."""
    return lambda node, of: _converted(node, of, target, (STRING, NULL, DATE, *_TIMES))


def _converted(
    node: exp.Expr, of: Of, target: pa.DataType, known: tuple[pa.DataType, ...]
) -> pa.DataType | None:
    types = [of(e) for e in node.expressions]
    return target if types[0] in known and all(t == STRING for t in types[1:]) else None


def seconds(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types UNIX_TIMESTAMP([x[, format]])."""
    types = [of(e) for e in node.expressions]
    known = not types or types[0] in (STRING, DATE, *_TIMES)
    return BIGINT if known and all(t == STRING for t in types[1:]) else None


RULES: dict[type[exp.Expr], Rule] = {
    WindowStart: window_start,
}
