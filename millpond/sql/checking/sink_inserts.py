"""Checks INSERT INTO a URI, which is a sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from millpond.changelog import DELETED, KEY, OP, written_schema
from millpond.errors import Error, InvalidOption, NotSupported
from millpond.options import Option, find_option, read_options
from millpond.sql import statements as st
from millpond.sql.aggregate import is_live_aggregate
from millpond.sql.catalog import Relation
from millpond.sql.checked import ChangesForm, Checked, CheckedInsert
from millpond.sql.checking.queries import Queries
from millpond.sql.checking.table_changes import envelope_of, follows_table, resolve_changes, with_key
from millpond.sql.joins import joins_of
from millpond.sql.realtime import not_in_real_time
from millpond.sql.resolve import Resolved

_OWNER = "INSERT INTO a URI"


def check_sink_insert(queries: Queries, s: st.Insert) -> Checked | None:
    """Returns the checked statement; None if it is refused."""
    if s.query is None or s.columns:
        queries.refuse(f"{_OWNER} with VALUES or columns", s)
        return None
    options = queries.world.sink_options(s.target)
    if follows_table(queries.catalog, s.query):
        return _check_changes(queries, s, options)
    resolved = queries.resolve(s.query, s.settings, options, _OWNER, s)
    if resolved is None:
        return None
    if s.query.emit == "changes" and not resolved.running:
        queries.refuse("EMIT CHANGES on a query that reads neither a stream nor a table", s)
        return None
    if "_key" not in resolved.schema:
        queries.group_outputs(resolved, s)
    resolved = queries.named_outputs(resolved, s)
    values = read_options(_OWNER, options, [x for x in s.settings if find_option(options, x.name)])
    if "delivery" in values and values["delivery"] is None and _obstacle(queries, resolved) is not None:
        values["delivery"] = "at-least-once"
    if queries.world.sink_is_exact(s.target, values):
        asked = values.get("delivery") is not None
        _check_exact(queries, resolved, s, once=not asked and "delivery" in values)
    if values.get("mode") == "realtime":
        reasons = list(not_in_real_time(resolved, values, queries.query_values, s.errors_into))
        for reason, hint in reasons:
            queries.errors.append(NotSupported(f"'mode' = 'realtime': {reason}", hint=hint, place=s.place))
        if reasons:
            return None
    with _placed(s):
        queries.world.check_sink(
            s.target,
            values,
            resolved.schema,
            running=resolved.running,
            groups=resolved.running and is_live_aggregate(resolved),
        )
    return CheckedInsert(
        s,
        resolved,
        queries.source_values,
        Relation(s.target, "sink", resolved.schema, uri=s.target),
        sink_options=values,
        query_options=queries.query_values,
    )


def _check_changes(queries: Queries, s: st.Insert, options: Sequence[Option]) -> Checked | None:
    """Checks a statement that writes the changes of a table."""
    resolved = resolve_changes(queries, s, options, _OWNER)
    if resolved is None:
        return None
    style = queries.world.sink_takes_changes(s.target)
    form = ChangesForm(envelope_of(_OWNER, s.settings), style)
    values = read_options(_OWNER, options, [x for x in s.settings if find_option(options, x.name)])
    if style == "key":
        if form.envelope != "rows":
            raise InvalidOption("a database gets rows", hint="leave 'envelope' out", place=s.place)
        values = with_key(values, resolved, s.place)
    if values.get("mode") == "realtime":
        raise InvalidOption(
            "'mode' = 'realtime' reads a topic, not a table", hint="leave 'mode' out", place=s.place
        )
    if style == "message" and KEY not in resolved.schema and not resolved.inputs[0].relation.schema.key:
        raise InvalidOption(
            f'table "{resolved.inputs[0].relation.name}" has no primary key to be that of messages',
            hint="give one: SELECT …, … AS _key",
            place=s.place,
        )
    taken = next((n for n in (OP, DELETED) if n in resolved.schema), None)
    if taken is not None:
        raise InvalidOption(
            f'the query has a column "{taken}", which the sink adds', hint="rename it", place=s.place
        )
    key = resolved.inputs[0].relation.schema
    named_by = pa.struct([(c.name, c.type) for name in key.key if (c := key.find(name)) is not None])
    as_record = values.get("key.format", "text") != "text"
    schema = written_schema(resolved.schema, form.envelope, style, named_by if as_record else None)
    with _placed(s):
        queries.world.check_sink(s.target, values, schema, running=True, groups=False, changes=True)
    return CheckedInsert(
        s,
        resolved,
        queries.source_values,
        Relation(s.target, "sink", schema, uri=s.target),
        sink_options=values,
        query_options=queries.query_values,
        form=form,
    )


def _obstacle(queries: Queries, resolved: Resolved) -> str | None:
    """Returns why a running statement is not delivered exactly once: a sink stores one position, of one stream, and no
    other state.
    """
    if not resolved.running:
        return None
    if any(joins_of(resolved)):
        return "joined streams"
    if is_live_aggregate(resolved):
        return "an aggregate"
    return "rows that wait for a match" if queries.query_values.get("on.miss") == "retry" else None


def _check_exact(queries: Queries, resolved: Resolved, s: st.Insert, *, once: bool) -> None:
    """Checks exactly-once delivery; ``once`` says whether the sink delivers rows of tables so too."""
    delivery = any(x.name.lower() == "delivery" for x in s.settings)
    shown = "'delivery' = 'exactly-once'" if delivery else "exactly-once delivery"
    if queries.query_values.get("on.miss") == "retry":
        raise InvalidOption(
            f"'on.miss' = 'retry' and {shown} do not go together: rows that wait are not in the sink's commit",
            hint="join into a stream first, and insert from that",
            place=s.place,
        )
    if not resolved.running and not once:
        raise NotSupported(
            f"{shown} of rows of tables, which are written once",
            hint="leave 'delivery' out; EXPLAIN shows what the sink guarantees for them",
            place=s.place,
        )
    what = _obstacle(queries, resolved)
    if what is not None:
        raise NotSupported(
            f"{shown} of {what}",
            hint="CREATE STREAM s AS SELECT …, and insert from that stream",
            place=s.place,
        )


@contextmanager
def _placed(s: st.Insert) -> Iterator[None]:
    """Gives an error its place: that of the option that it names, else that of the statement."""
    try:
        yield
    except Error as error:
        named = (x.place for x in s.settings if f'"{x.name.lower()}"' in error.message)
        error.place = error.place or next(named, None) or s.place
        raise
