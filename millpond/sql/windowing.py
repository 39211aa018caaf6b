"""Lowers time windows: ``WINDOW TUMBLING(…)`` and ``GROUP BY window(…)`` become one more grouping column.

That column is the start time of the window. Hopping windows are grouped by their common parts, which are combined when
a batch is merged; sessions by each time, and then joined.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Place, SqlError
from millpond.options import Option, Setting, find_option, parse_duration
from millpond.sql import statements as st
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.nodes import WindowStart

WINDOW_OPTIONS: tuple[Option, ...] = (
    Option(
        "late",
        "choice",
        "What happens to a late row, whose window has closed. drop: it is counted. update: it "
        "changes the window.",
        default="drop",
        choices=("drop", "update"),
    ),
    Option(
        "retention",
        "duration",
        "How long a closed window is stored, in event time. Without it: for ever.",
    ),
)
_FUNCTIONS = {"WINDOW": "window", "SESSION_WINDOW": "session_window"}


@dataclass(frozen=True, slots=True)
class Window:
    """Describes the window of a query, in microseconds; ``size`` is the gap of a session, ``pane`` what rows are
    grouped by.

    ``mark`` is the column of the stream whose highest value, less ``delay``, is the watermark.
    """

    kind: st.WindowKind
    size: int
    slide: int
    pane: int
    offset: int = 0
    mark: str | None = None
    delay: int = 0
    final: bool = False
    late: Literal["drop", "update"] = "drop"
    retention: int | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    kind: st.WindowKind
    time: exp.Expr
    size: int
    slide: int
    offset: int
    call: exp.Expr | None
    """The call in GROUP BY, if it is in Spark's syntax."""


def has_window(query: st.Query) -> bool:
    return query.window is not None or _call_of(query.expression) is not None


def beside_window(query: st.Query, settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Returns the settings of a statement without those of its query's window."""
    windowed = has_window(query)
    return tuple(x for x in settings if not windowed or find_option(WINDOW_OPTIONS, x.name) is None)


def lower_window(query: st.Query, catalog: Catalog, *, outputs: bool) -> tuple[exp.Expression, Window | None]:
    """Returns the query with its window as a grouping column.

    With ``outputs`` it also returns ``window_start`` and ``window_end`` if its list does not name the window. Windows
    of a table other than simple ones remain: Spark evaluates them. Raises SqlError.
    """
    call = _call_of(query.expression)
    if query.window is None and call is None:
        return query.expression, None
    if query.window is not None and call is not None:
        raise SqlError("a query has one window", hint="use WINDOW …, or window(…) in GROUP BY")
    if not isinstance(query.expression, exp.Select):
        raise SqlError("WINDOW stands after one SELECT, not after a set operation")
    streams = _streams(query.expression, catalog)
    found = _of_call(call) if call is not None else _of_clause(query, streams)
    if not streams and found.kind != "tumbling":
        if call is not None:
            return query.expression, None
        raise SqlError(
            f"{found.kind.upper()} windows are made over a stream, not over tables",
            hint="GROUP BY window(ts, '10 minutes', '2 minutes') works on tables",
        )
    pane = {"tumbling": found.size, "hopping": math.gcd(found.size, found.slide), "session": 0}[found.kind]
    marked = next((s for s in streams if s.watermark is not None), None)
    mark = marked.watermark if marked is not None else None
    window = Window(
        found.kind,
        found.size,
        found.slide,
        pane,
        found.offset,
        mark.column if mark is not None else None,
        micros(mark.seconds) if mark is not None else 0,
        query.emit == "final",
    )
    return _lowered(query.expression.copy(), found, window, outputs=outputs), window


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _call_of(tree: exp.Expr) -> exp.Anonymous | None:
    group = tree.args.get("group") if isinstance(tree, exp.Select) else None
    for key in group.expressions if group is not None else ():
        if isinstance(key, exp.Anonymous) and str(key.this).upper() in _FUNCTIONS:
            return key
    return None


def _streams(select: exp.Select, catalog: Catalog) -> list[Relation]:
    named = (catalog.find(t.name) for t in select.find_all(exp.Table))
    return [r for r in named if r is not None and r.running]


def _of_clause(query: st.Query, streams: list[Relation]) -> _Found:
    clause = query.window
    assert clause is not None
    time = clause.time.copy() if clause.time is not None else _time_of(query.expression, streams)
    size = micros(clause.size)
    slide = micros(clause.slide) if clause.slide is not None else size
    if slide > size:
        raise SqlError(
            "the slide of a window cannot be longer than its size", hint="HOPPING(10m, 2m): size, slide"
        )
    kind = "tumbling" if clause.kind == "hopping" and slide == size else clause.kind
    return _Found(kind, time, size, slide, 0, None)


def _of_call(call: exp.Anonymous) -> _Found:
    session = str(call.this).upper() == "SESSION_WINDOW"
    time, *rest = call.expressions or [exp.Null()]
    form = (
        "session_window(ts, '30 seconds')" if session else "window(ts, '10 minutes'[, '2 minutes'[, start]])"
    )
    if not 1 <= len(rest) <= (1 if session else 3):
        raise SqlError(f"{call.name} takes a time and lengths of time", hint=form)
    lengths = [_length(r, call.name, form) for r in rest]
    size = lengths[0]
    slide = lengths[1] if len(lengths) > 1 else size
    if size <= 0 or slide <= 0 or slide > size:
        raise SqlError("the slide of a window is more than nothing and not longer than its size", hint=form)
    kind: st.WindowKind = "session" if session else "tumbling" if slide == size else "hopping"
    return _Found(kind, time.copy(), size, slide, lengths[2] if len(lengths) > 2 else 0, call)


def _length(node: exp.Expr, function: str, form: str) -> int:
    text = node.name if isinstance(node, exp.Literal) and node.is_string else None
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = node.args.get("unit")
        text = f"{node.this.name} {unit.name}" if unit is not None else node.this.name
    if text is None:
        raise SqlError(f"the lengths of {function} are written out", hint=form)
    try:
        return micros(parse_duration(text))
    except ValueError as error:
        raise SqlError(f'"{text}" is not a length of time', hint=str(error)) from None


def _time_of(select: exp.Expr, streams: list[Relation]) -> exp.Expr:
    """Returns the time of a stream: the column of its watermark, or the only one that is a time."""
    for stream in streams:
        times = [c.name for c in stream.schema if c.type is not None and pa.types.is_timestamp(c.type)]
        name = stream.watermark.column if stream.watermark is not None else None
        if name is None and len(times) == 1:
            name = times[0]
        if name is not None:
            return exp.column(exp.to_identifier(name, quoted=True), table=_alias(select, stream))
        raise SqlError(
            f'stream "{stream.name}" has {"several times" if times else "no time"} to make windows of',
            hint=f"name one: WINDOW TUMBLING({times[0]}, 5m)" if times else "give it a TIMESTAMP column",
        )
    raise SqlError("a window needs a time", hint="name it: WINDOW TUMBLING(ts, 5m)")


def _alias(select: exp.Expr, stream: Relation) -> exp.Identifier | None:
    for table in select.find_all(exp.Table):
        if table.name.lower() == stream.name.lower() and table.find_ancestor(exp.Select) is select:
            return exp.to_identifier(table.alias_or_name, quoted=True)
    return None


def _lowered(select: exp.Select, found: _Found, window: Window, *, outputs: bool) -> exp.Select:
    start = WindowStart(
        this=found.time, size=exp.Literal.number(window.pane), offset=exp.Literal.number(window.offset)
    )
    last: exp.Expr = exp.Max(this=found.time.copy()) if found.kind == "session" else start.copy()
    end = exp.Paren(this=exp.Add(this=last, expression=_interval(window.size)))
    both = exp.Struct(
        expressions=[
            exp.PropertyEQ(this=exp.to_identifier(n), expression=v.copy())
            for n, v in (("start", start), ("end", end))
        ]
    )
    named = "session_window" if found.kind == "session" else "window"
    known: dict[tuple[str, str], exp.Expr] = {
        ("", "window_start"): start,
        ("", "window_end"): end,
        (named, "start"): start,
        (named, "end"): end,
    }
    if found.call is not None:
        known[("", named)] = both
    used = False

    def replace(node: exp.Expr) -> exp.Expr:
        nonlocal used
        value = None
        if isinstance(node, exp.Column):
            value = known.get((node.table.lower(), node.name.lower()))
        elif found.call is not None and isinstance(node, exp.Dot) and node.this == found.call:
            value = known.get((named, node.expression.name.lower()))
        elif found.call is not None and node == found.call:
            value = both
        if value is None:
            return node
        used = True
        return value.copy()

    listed: list[exp.Expr] = []
    for item in select.expressions:
        name = item.alias_or_name if isinstance(item, exp.Alias | exp.Column | exp.Dot) else ""
        if found.call is not None and item == found.call:
            name = named
        made = cast(exp.Expr, item.copy().transform(replace, copy=False))
        if made != item and not isinstance(made, exp.Alias) and name:
            made = exp.alias_(made, name, quoted=True)
        listed.append(made)
    if outputs and not used:
        listed += [exp.alias_(start.copy(), "window_start"), exp.alias_(end.copy(), "window_end")]
    select.set("expressions", listed)
    having = select.args.get("having")
    if having is not None:
        having.transform(replace, copy=False)
    group = select.args.get("group")
    keys = [k for k in group.expressions if k != found.call] if group is not None else []
    if group is None:
        select.set("group", exp.Group(expressions=[start]))
    else:
        group.set("expressions", [start, *keys])
    return select.where(exp.Not(this=exp.Is(this=found.time.copy(), expression=exp.Null())), copy=False)


def _interval(length: int) -> exp.Interval:
    whole, unit = (length // 1_000_000, "SECOND") if length % 1_000_000 == 0 else (length, "MICROSECOND")
    return exp.Interval(this=exp.Literal.string(str(whole)), unit=exp.var(unit))


def retained(seconds: float | None) -> int | None:
    return None if seconds is None else micros(seconds)


def check_window(window: Window, running: bool, place: Place | None) -> Iterator[SqlError]:
    """Checks a window without a watermark: no row is late, and no window closes."""
    if not running:
        if window.final:
            yield SqlError("EMIT FINAL is for a stream", place=place)
        return
    if window.mark is not None:
        return
    hint = "declare it with the stream: CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"
    if window.final:
        yield SqlError("EMIT FINAL needs a watermark: without one no window closes", hint=hint, place=place)
    if window.retention is not None:
        yield SqlError(
            "'retention' of windows needs a watermark: without one no window closes", hint=hint, place=place
        )
