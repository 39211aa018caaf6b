"""Functions of dates and times. Times are UTC: a connection has that as its time zone."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.sql.nodes import WindowStart
from millpond.sql.render.duckdb.expression import Entry, Expressions
from millpond.sql.render.duckdb.names import NOW, Unrenderable, text, typed
from millpond.sql.render.duckdb.strings import literal
from millpond.sql.typing.coercion import BIGINT, DATE, INT, STRING, is_integer
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
_DAYS = {d: i for i, names in enumerate(("MO", "TU", "WE", "TH", "FR", "SA", "SU"), 1) for d in (names,)}
_FORMAT = {
    "%Y": "%Y",
    "%mstrict": "%m",
    "%dstrict": "%d",
    "%Hstrict": "%H",
    "%Mstrict": "%M",
    "%Sstrict": "%S",
}


def of_date(template: str) -> Entry:
    """An INT of a date."""

    def entry(r: Expressions, node: exp.Expr) -> str:
        argument = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
        return typed(template.format(x=r.to(argument, DATE)), INT)

    return entry


def _time(r: Expressions, node: exp.Expr) -> str:
    """A value as TIMESTAMP; TIMESTAMP_NTZ stays itself."""
    source = r.type(node)
    return r.sql(node) if source == TIMESTAMP_NTZ else r.to(node, TIMESTAMP)


def of_time(name: str) -> Entry:
    def entry(r: Expressions, node: exp.Expr) -> str:
        return typed(f"{name}({_time(r, node.this)})", INT)

    return entry


def extracted(r: Expressions, node: exp.Expr) -> str:
    unit, value = node.this.name.upper(), _time(r, node.expression)
    if unit in ("SECOND", "S", "SEC", "SECONDS") and r.type(node) == pa.decimal128(8, 6):
        micros = f"CAST(extract('microseconds' FROM {value}) AS DECIMAL(8, 0))"
        return typed(f"{micros} * CAST('0.000001' AS DECIMAL(6, 6))", r.type(node))
    template = _PARTS.get(unit) or _PARTS.get(unit.removesuffix("S"))
    if template is None:
        raise Unrenderable(f"EXTRACT({unit})")
    return typed(template.format(x=value), INT)


def window_start(r: Expressions, node: exp.Expr) -> str:
    """The time rounded down to a multiple of so many microseconds, also before 1970."""
    size, offset = int(node.args["size"].name), int(node.args["offset"].name)
    if not size:
        return r.sql(node.this)
    at, zero = f"epoch_us({r.sql(node.this)})", f"CAST({offset} AS BIGINT)"
    length = f"CAST({size} AS BIGINT)"
    over = f"((({at} - {zero}) % {length}) + {length}) % {length}"
    name = "make_timestamp" if r.type(node) == TIMESTAMP_NTZ else "make_timestamptz"
    return f"{name}({at} - {over})"


def to_date(r: Expressions, node: exp.Expr) -> str:
    if node.args.get("format") is not None:
        raise Unrenderable("TO_DATE with a format")
    return r.to(node.this, DATE)


def days_later(r: Expressions, node: exp.Expr) -> str:
    if node.args.get("unit") is not None and unit_name(node.args["unit"]) != "DAY":
        raise Unrenderable("DATE_ADD of another unit")
    if not is_integer(r.type(node.expression)) or r.type(node.expression) == BIGINT:
        raise Unrenderable("DATE_ADD of this type")
    return f"({r.to(node.this, DATE)} + {r.to(node.expression, INT)})"


def days_between(r: Expressions, node: exp.Expr) -> str:
    if node.args.get("unit") is not None:
        raise Unrenderable("DATEDIFF of a unit")
    return typed(f"({r.to(node.this, DATE)} - {r.to(node.expression, DATE)})", INT)


def months_later(r: Expressions, node: exp.Expr) -> str:
    return typed(f"{r.to(node.this, DATE)} + to_months({r.to(node.expression, INT)})", DATE)


def time_later(r: Expressions, node: exp.Expr) -> str:
    """TIMESTAMPADD, DATEADD with a unit."""
    unit = unit_name(node.args["unit"])
    if unit not in (*_MICROSECONDS, "MONTH", "YEAR") or unit == "MICROSECOND":
        raise Unrenderable(f"TIMESTAMPADD of {unit}")
    amount = f"to_{unit.lower()}s({r.to(node.expression, INT)})"
    return typed(f"{r.to(node.this, r.type(node))} + {amount}", r.type(node))


def time_between(r: Expressions, node: exp.Expr) -> str:
    unit = unit_name(node.args["unit"])
    if unit not in _MICROSECONDS:
        raise Unrenderable(f"TIMESTAMPDIFF of {unit}")
    later, earlier = (f"epoch_us({_time(r, e)})" for e in (node.this, node.expression))
    return f"(({later} - {earlier}) // CAST({_MICROSECONDS[unit]} AS BIGINT))"


def truncated_date(r: Expressions, node: exp.Expr) -> str:
    unit = node.args["unit"].name.upper()
    if unit not in _TRUNCATIONS:
        raise Unrenderable(f"TRUNC to {unit}")
    return typed(f"date_trunc('{_TRUNCATIONS[unit]}', {r.to(node.this, DATE)})", DATE)


def truncated_time(r: Expressions, node: exp.Expr) -> str:
    unit = node.args["unit"].name.upper()
    if unit not in _TIME_TRUNCATIONS or node.args.get("zone") is not None:
        raise Unrenderable(f"DATE_TRUNC to {unit}")
    return typed(f"date_trunc('{_TIME_TRUNCATIONS[unit]}', {r.to(node.this, r.type(node))})", r.type(node))


def next_day(r: Expressions, node: exp.Expr) -> str:
    day = _DAYS.get(literal(node.expression, "a day")[:2].upper())
    if day is None:
        raise Unrenderable("NEXT_DAY of an unknown day")
    date = r.to(node.this, DATE)
    return f"({date} + CAST(({day} - isodow({date}) + 6) % 7 + 1 AS INTEGER))"


def _strftime(node: exp.Expr | None) -> str:
    """A format of whole fields, each with its full width."""
    rest, parts = literal(node, "a format"), []
    while rest:
        for field, own in _FORMAT.items():
            if rest.startswith(field) and not rest[len(field) :].startswith(field[-2:]):
                parts.append(own)
                rest = rest[len(field) :]
                break
        else:
            if rest[0] not in "-/: .,_":
                raise Unrenderable("a date format with other fields")
            parts.append(rest[0])
            rest = rest[1:]
    return text("".join(parts))


def formatted(r: Expressions, node: exp.Expr) -> str:
    value = node.this.this if isinstance(node.this, exp.TimeStrToTime) else node.this
    return f"strftime({typed(_time(r, value), TIMESTAMP_NTZ)}, {_strftime(node.args.get('format'))})"


def from_seconds(r: Expressions, node: exp.Expr) -> str:
    when = f"make_timestamp({r.to(node.this, BIGINT)} * CAST(1000000 AS BIGINT))"
    return f"strftime({when}, {_strftime(node.args.get('format'))})"


def seconds(r: Expressions, node: exp.Expr) -> str:
    """UNIX_SECONDS of a time, rounded down."""
    return f"(epoch_us(date_trunc('second', {_time(r, node.this)})) // CAST(1000000 AS BIGINT))"


def unix_timestamp(r: Expressions, node: exp.Expr) -> str:
    """UNIX_TIMESTAMP of a time, rounded towards 1970."""
    if r.type(node.this) == STRING:
        raise Unrenderable("UNIX_TIMESTAMP of a string")
    return f"(epoch_us({_time(r, node.this)}) // CAST(1000000 AS BIGINT))"


def milliseconds(r: Expressions, node: exp.Expr) -> str:
    return f"(epoch_us(date_trunc('millisecond', {_time(r, node.this)})) // CAST(1000 AS BIGINT))"


def time_from_number(factor: int) -> Entry:
    def entry(r: Expressions, node: exp.Expr) -> str:
        (argument,) = node.expressions
        if not is_integer(r.type(argument)):
            raise Unrenderable("TIMESTAMP_SECONDS of a fraction")
        return f"make_timestamptz({r.to(argument, BIGINT)} * CAST({factor} AS BIGINT))"

    return entry


def current_time(r: Expressions, node: exp.Expr) -> str:
    """The time that whoever runs the query gives it, the same for all of its rows."""
    return f"getvariable('{NOW}')"


def current_date(r: Expressions, node: exp.Expr) -> str:
    return typed(current_time(r, node), DATE)


def make_date(r: Expressions, node: exp.Expr) -> str:
    year, month, day = (r.to(e, INT) for e in node.expressions)
    return f"make_date({year}, {month}, {day})"


def date_part(r: Expressions, node: exp.Expr) -> str:
    unit, value = node.expressions
    part = exp.Extract(this=exp.Var(this=literal(unit, "a field")), expression=value.copy())
    return extracted(r, part)


ENTRIES: dict[type[exp.Expr], Entry] = {
    exp.Year: of_date("year({x})"),
    exp.Quarter: of_date("quarter({x})"),
    exp.Month: of_date("month({x})"),
    exp.Day: of_date("day({x})"),
    exp.DayOfMonth: of_date("day({x})"),
    exp.DayOfWeek: of_date("dayofweek({x}) + 1"),
    exp.DayOfYear: of_date("dayofyear({x})"),
    exp.WeekOfYear: of_date("week({x})"),
    exp.UnixDate: of_date("({x} - DATE '1970-01-01')"),
    exp.Hour: of_time("hour"),
    exp.Minute: of_time("minute"),
    exp.Second: of_time("second"),
    exp.Extract: extracted,
    exp.TsOrDsToDate: to_date,
    exp.TsOrDsAdd: days_later,
    exp.DateDiff: days_between,
    exp.AddMonths: months_later,
    exp.LastDay: lambda r, node: f"last_day({r.to(node.this, DATE)})",
    exp.NextDay: next_day,
    exp.DateTrunc: truncated_date,
    exp.TimestampTrunc: truncated_time,
    WindowStart: window_start,
    exp.TimestampAdd: time_later,
    exp.TimestampDiff: time_between,
    exp.TimeToStr: formatted,
    exp.UnixToStr: from_seconds,
    exp.StrToUnix: unix_timestamp,
    exp.UnixSeconds: seconds,
    exp.UnixMillis: milliseconds,
    exp.UnixMicros: lambda r, node: f"epoch_us({_time(r, node.this)})",
    exp.CurrentTimestamp: current_time,
    exp.CurrentDate: current_date,
    exp.DateFromUnixDate: lambda r, node: f"(DATE '1970-01-01' + {r.to(node.this, INT)})",
}

NAMED: dict[str, Entry] = {
    "WEEKDAY": of_date("isodow({x}) - 1"),
    "NOW": current_time,
    "MAKE_DATE": make_date,
    "DATE_PART": date_part,
    "TIMESTAMP_SECONDS": time_from_number(1_000_000),
    "TIMESTAMP_MILLIS": time_from_number(1_000),
    "TIMESTAMP_MICROS": time_from_number(1),
}
