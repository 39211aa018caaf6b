"""Renders functions of dates and times. Times are UTC: that is the time zone of a connection."""

from __future__ import annotations

import re

import pyarrow as pa
from sqlglot import exp

from millpond.sql.nodes import WindowStart
from millpond.sql.render.duckdb.expression import Entry, Expressions
from millpond.sql.render.duckdb.names import NOW, Unrenderable, once, text, typed
from millpond.sql.render.duckdb.strings import literal
from millpond.sql.typing import coercion
from millpond.sql.typing.coercion import BIGINT, DATE, INT, NULL, STRING, is_integer
from millpond.sql.typing.literals import unit_name
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ

_TRUNCATIONS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
}
_TIME_TRUNCATIONS = {
    **_TRUNCATIONS,
    **dict.fromkeys(("DAY", "DD"), "day"),
    **{unit: unit.lower() for unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")},
}
_PARTS = {
    **dict.fromkeys(("YEAR", "Y", "YR"), "year({x})"),
    **dict.fromkeys(("QUARTER", "QTR"), "quarter({x})"),
    **dict.fromkeys(("MONTH", "MON"), "month({x})"),
    **dict.fromkeys(("WEEK", "W"), "week({x})"),
    **dict.fromkeys(("DAY", "D"), "day({x})"),
    **dict.fromkeys(("DAYOFWEEK", "DOW"), "dayofweek({x}) + 1"),
    "DAYOFWEEK_ISO": "isodow({x})",
    "DOW_ISO": "isodow({x})",
    "DOY": "dayofyear({x})",
    "YEAROFWEEK": "isoyear({x})",
    **dict.fromkeys(("HOUR", "H"), "hour({x})"),
    **dict.fromkeys(("MINUTE", "MIN", "M"), "minute({x})"),
}
_MICROSECONDS = {
    "WEEK": 604_800_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_DAY_NAMES = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_DAYS = {form: i for i, name in enumerate(_DAY_NAMES, 1) for form in (name, name[:2], name[:3])}
_FORMAT = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_FIELDS = re.compile(r"(?:([A-Za-z])\1*)|'[^']*'|[-/: .,_]+|.", re.DOTALL)


def of_date(template: str) -> Entry:
    """Returns the entry for a function that returns an INT of a date."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        return typed(template.format(x=r.given(node)[0]), INT)

    return entry


def _time(r: Expressions, node: exp.Expr) -> str:
    """Renders a value as TIMESTAMP; TIMESTAMP_NTZ is unchanged."""
    source = r.type(node)
    return r.sql(node) if source == TIMESTAMP_NTZ else r.to(node, TIMESTAMP)


def of_time(name: str) -> Entry:
    def entry(r: Expressions, node: exp.Expr) -> str:
        return typed(f"{name}({r.given(node)[0]})", INT)

    return entry


def extracted(r: Expressions, node: exp.Expr) -> str:
    unit = node.this.name.upper()
    value = r.sql(node.expression) if r.type(node.expression) == DATE else _time(r, node.expression)
    if unit in ("SECOND", "S", "SEC", "SECONDS") and r.type(node) == pa.decimal128(8, 6):
        micros = f"CAST(extract('microseconds' FROM {value}) AS DECIMAL(8, 0))"
        return typed(f"{micros} * CAST('0.000001' AS DECIMAL(6, 6))", r.type(node))
    template = _PARTS.get(unit) or _PARTS.get(unit.removesuffix("S"))
    if template is None:
        raise Unrenderable(f"EXTRACT({unit})")
    return typed(template.format(x=value), INT)


def window_start(r: Expressions, node: exp.Expr) -> str:
    """Renders the time rounded down to a multiple of a number of microseconds, also before 1970."""
    size, offset = int(node.args["size"].name), int(node.args["offset"].name)
    if not size:
        return r.sql(node.this)
    at, zero = f"epoch_us({r.sql(node.this)})", f"CAST({offset} AS BIGINT)"
    length = f"CAST({size} AS BIGINT)"
    over = f"((({at} - {zero}) % {length}) + {length}) % {length}"
    name = "make_timestamp" if r.type(node) == TIMESTAMP_NTZ else "make_timestamptz"
    return f"{name}({at} - {over})"


def to_date(r: Expressions, node: exp.Expr) -> str:
    if len(node.expressions) > 1:
        raise Unrenderable("TO_DATE with a format")
    return r.to(node.expressions[0], DATE)


def to_time(r: Expressions, node: exp.Expr) -> str:
    if len(node.expressions) > 1:
        raise Unrenderable("TO_TIMESTAMP with a format")
    return r.to(node.expressions[0], r.type(node))


def days_later(symbol: str) -> Entry:
    """Returns the entry for DATE_ADD and DATE_SUB of days; with a unit, DATE_ADD is TIMESTAMPADD."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        if len(node.expressions) == 3:
            return time_later(r, node)
        date, days = node.expressions
        if r.type(days) not in coercion.INTEGERS[:3]:
            raise Unrenderable("DATE_ADD of this type")
        return f"({r.to(date, DATE)} {symbol} {r.to(days, INT)})"

    return entry


def days_between(r: Expressions, node: exp.Expr) -> str:
    if len(node.expressions) == 3:
        return time_between(r, node)
    later, earlier = r.given(node)
    return typed(f"({later} - {earlier})", INT)


def months_later(r: Expressions, node: exp.Expr) -> str:
    date, months = r.given(node)
    return typed(f"{date} + to_months({months})", DATE)


def time_later(r: Expressions, node: exp.Expr) -> str:
    """Renders TIMESTAMPADD, and DATEADD with a unit."""
    named, amount, value = node.expressions
    unit, result = unit_name(named), r.type(node)
    count, when = r.to(amount, BIGINT), r.to(value, result)
    if unit in _MICROSECONDS:
        make = "make_timestamptz" if result == TIMESTAMP else "make_timestamp"
        moved = f"{make}(epoch_us({when}) + {count} * CAST({_MICROSECONDS[unit]} AS BIGINT))"
        return f"(CASE WHEN {when} IS NOT NULL THEN {moved} END)"
    if unit not in _MONTHS:
        raise Unrenderable(f"TIMESTAMPADD of {unit}")
    months = f"CAST({count} * CAST({_MONTHS[unit]} AS BIGINT) AS INTEGER)"
    moved = typed(f"{when} + to_months({months})", result)
    return f"(CASE WHEN {when} IS NOT NULL THEN {moved} END)"


def time_between(r: Expressions, node: exp.Expr) -> str:
    named, earlier, later = node.expressions
    unit = unit_name(named)
    if unit not in _MICROSECONDS:
        raise Unrenderable(f"TIMESTAMPDIFF of {unit}")
    end, start = (f"epoch_us({r.to(e, TIMESTAMP)})" for e in (later, earlier))
    return f"(({end} - {start}) // CAST({_MICROSECONDS[unit]} AS BIGINT))"


def truncated_date(r: Expressions, node: exp.Expr) -> str:
    date, _ = r.given(node)
    unit = literal(node.expressions[1], "a unit").upper()
    if unit not in _TRUNCATIONS:
        raise Unrenderable(f"TRUNC to {unit}")
    return typed(f"date_trunc('{_TRUNCATIONS[unit]}', {date})", DATE)


def truncated_time(r: Expressions, node: exp.Expr) -> str:
    _, value = r.given(node)
    unit = literal(node.expressions[0], "a unit").upper()
    if unit not in _TIME_TRUNCATIONS:
        raise Unrenderable(f"DATE_TRUNC to {unit}")
    return typed(f"date_trunc('{_TIME_TRUNCATIONS[unit]}', {value})", TIMESTAMP)


def next_day(r: Expressions, node: exp.Expr) -> str:
    date, _ = r.given(node)
    day = _DAYS.get(literal(node.expressions[1], "a day").upper())
    if day is None:
        raise Unrenderable("NEXT_DAY of an unknown day")
    return once(date, lambda d: f"({d} + CAST(({day} - isodow({d}) + 6) % 7 + 1 AS INTEGER))")


def _strftime(node: exp.Expr) -> str:
    """Returns a format of whole fields, each with its full width."""
    parts: list[str] = []
    if not literal(node, "a format"):
        raise Unrenderable("an empty format")
    for found in _FIELDS.finditer(literal(node, "a format")):
        field = found.group()
        if field in _FORMAT:
            parts.append(_FORMAT[field])
        elif field[0] in "-/: .,_":
            parts.append(field)
        else:
            raise Unrenderable("a date format with other fields")
    return text("".join(parts))


def formatted(r: Expressions, node: exp.Expr) -> str:
    value, _ = r.given(node)
    return f"strftime({typed(value, TIMESTAMP_NTZ)}, {_strftime(node.expressions[1])})"


def from_seconds(r: Expressions, node: exp.Expr) -> str:
    form = node.expressions[1] if len(node.expressions) > 1 else exp.Literal.string("yyyy-MM-dd HH:mm:ss")
    when = f"make_timestamp({r.given(node)[0]} * CAST(1000000 AS BIGINT))"
    return f"strftime({when}, {_strftime(form)})"


def since_1970(per_second: int) -> Entry:
    """Returns the entry for UNIX_SECONDS, UNIX_MILLIS and UNIX_MICROS of a time, rounded down."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        micros = f"epoch_us({r.given(node)[0]})"
        if per_second == 1_000_000:
            return micros
        step = f"CAST({1_000_000 // per_second} AS BIGINT)"
        return once(
            micros, lambda m: f"(CASE WHEN {m} < 0 THEN ({m} + 1) // {step} - 1 ELSE {m} // {step} END)"
        )

    return entry


def unix_timestamp(r: Expressions, node: exp.Expr) -> str:
    """Renders UNIX_TIMESTAMP of a time, rounded towards 1970; without an argument, of the current time."""
    if node.expressions and r.type(node.expressions[0]) in (STRING, NULL):
        raise Unrenderable("UNIX_TIMESTAMP of a string")
    time = _time(r, node.expressions[0]) if node.expressions else current_time(r, node)
    return f"(epoch_us({time}) // CAST(1000000 AS BIGINT))"


def time_from_number(factor: int) -> Entry:
    def entry(r: Expressions, node: exp.Expr) -> str:
        (argument,) = node.expressions
        if not is_integer(r.type(argument)):
            raise Unrenderable("TIMESTAMP_SECONDS of a fraction")
        return f"make_timestamptz({r.to(argument, BIGINT)} * CAST({factor} AS BIGINT))"

    return entry


def current_time(r: Expressions, node: exp.Expr) -> str:
    """Renders the time that the caller of the query sets, the same for all of its rows."""
    return f"getvariable('{NOW}')"


def current_date(r: Expressions, node: exp.Expr) -> str:
    return typed(current_time(r, node), DATE)


def make_date(r: Expressions, node: exp.Expr) -> str:
    year, month, day = r.given(node)
    return f"make_date({year}, {month}, {day})"


def date_part(r: Expressions, node: exp.Expr) -> str:
    unit, value = node.expressions
    part = exp.Extract(this=exp.Var(this=literal(unit, "a field")), expression=value.copy())
    return extracted(r, part)


ENTRIES: dict[type[exp.Expr], Entry] = {
    WindowStart: window_start,
}
