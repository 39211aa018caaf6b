"""Renders a fold as one SQL query: it collects the events of each row, or of each key, in order and reduces them.

Both evaluators use the same form; ``Words`` is how each writes the parts. List, row and result of a step are one struct
type, because DuckDB's ``list_reduce`` has one type for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from millpond.sql.fold import (
    CHANGED,
    EVENTS,
    GONE,
    NEVER,
    NEW,
    PAIRS,
    ROWS,
    SAME,
    SEQ,
    E,
    Fold,
    KeyFold,
    RowFold,
    T,
    When,
    identity_columns,
)
from millpond.sql.paths import NUMBERS, TEXTS
from millpond.sql.render.words import STATUS, SparkWords, Words
from millpond.sql.userfunctions import functions_in
from millpond.types import Column, Schema

S = "__s"
ST = "st"
OUT = "out"
"""The rows of RETURNING, as a list of structs with ``seq`` and o0, o1, …"""
PART, NOW, BEFORE = "__part", "now", "before"
"""A part of the events of a row, the row after it, and the row before each part."""
KEPT = "rows"
"""The rows of a key."""


def render_fold(fold: Fold, words: Words, *, numbered: bool = False) -> str:
    """Returns the query of a fold. It reads PAIRS and ROWS, or EVENTS and ROWS, and returns ``st``, i0, …, r0, …

    Rows of a ``KeyFold`` are in the order of their events or, if ``numbered``, have it in a last column, ``seq``.
    """
    if isinstance(fold, RowFold):
        return _rows(fold, words)
    last = [SEQ] if numbered else []
    return _single(fold, words, last) if fold.single else _keys(fold, words, last)


def not_divided(fold: Fold) -> str | None:
    """Returns why several executors cannot share the work of a fold; None if they can."""
    if isinstance(fold, KeyFold) and not fold.lookup:
        return "all rows are folded together"
    sql = render_fold(fold, SparkWords())
    if any(functions_in(sql)) or TEXTS in sql or NUMBERS in sql:
        return "Spark cannot call Python for each event of a row"
    return None


def fold_outputs(fold: Fold) -> list[str]:
    """Returns the names of the columns of the result."""
    names = [ST, *_identities(fold), *_row_names(fold)]
    return [*names, OUT] if fold.returning is not None else names


def _identities(fold: Fold) -> list[str]:
    return [f"i{n}" for n in range(len(identity_columns(fold.target)))]


def _row_names(fold: Fold) -> list[str]:
    return [f"r{n}" for n in range(len(fold.target.schema))]


def _rows(fold: RowFold, w: Words) -> str:
    rows = dict(zip(_row_names(fold), fold.target.schema, strict=True))
    out = _out_type(fold)
    if fold.values:
        status, row = w.status(CHANGED), {n: w.sql(v) for n, v in zip(rows, fold.values, strict=True)}
        applies = [] if fold.rest is None else [f"COALESCE({w.sql(fold.rest)}, FALSE)"]
    else:
        status, row = w.status(GONE), {name: w.of(T, name) for name in rows}
        applies = [f"{w.of(T, ST)} <> {w.status(GONE)}"]

    def state(status: str, row: Mapping[str, str], *, returned: str = "") -> str:
        more = {OUT: returned} if returned else {}
        return w.struct(_state(w, {ST: status, **row, **more}, fold.read))

    def start(of: str, *, returns: bool) -> str:
        row = {name: w.of(of, name) for name in rows}
        return state(w.of(of, ST), row, returned=w.empty(out) if out is not None and returns else "")

    def step(*, returns: bool) -> str:
        returned = ""
        if fold.returning is not None and returns:
            values = {f"o{n}": w.sql(v) for n, v in enumerate(fold.returning.values)}
            returned = w.append(w.of(T, OUT), w.struct({SEQ: w.of(E, SEQ), **values}))
        made = state(status, row, returned=returned)
        return f"CASE WHEN {' AND '.join(applies)} THEN {made} ELSE {w.name(T)} END" if applies else made

    events, returned = w.of("p", "es"), []
    if out is None or not isinstance(w, SparkWords):
        reduced = w.reduce(events, T, E, step(returns=True), start("w", returns=True))
        now = "f"
        returned = [w.of("f", OUT)] if out is not None else []
    else:
        # First the row before each part of the events, then what the events of each part return.
        kind = pa.struct([pa.field(ST, STATUS), *(pa.field(n, c.type) for n, c in rows.items())])
        parts, before = w.parts(events), w.empty(pa.list_(kind))
        next_row = w.reduce(w.name(PART), T, E, step(returns=False), w.of(S, NOW))
        after = w.struct({NOW: next_row, BEFORE: w.append(w.of(S, BEFORE), w.of(S, NOW))})
        begun = w.struct({NOW: start("w", returns=False), BEFORE: before})
        reduced = w.reduce(parts, S, PART, after, begun)
        now = f"f.{NOW}"
        each = w.reduce(w.name(PART), T, E, step(returns=True), start(S, returns=True)) + f".{OUT}"
        returned = [f"{w.flat(w.each_of_both(parts, w.of('f', BEFORE), PART, S, each))} AS {OUT}"]
    known = _identities(fold)
    keys = ", ".join(w.name(i) for i in known)
    same = " AND ".join(f"{w.same(w.of('p', i), w.of('w', i))}" for i in known)
    found = [f"{now}.{ST}", *(w.name(i) for i in known), *(f"{now}.{n}" for n in rows), *returned]
    nothing = {ST: w.status(SAME), **{name: w.null(c.type) for name, c in rows.items()}}
    nothing |= {OUT: w.null(out)} if out is not None else {}
    return (
        f"SELECT {', '.join(found)} FROM ("
        f"SELECT {', '.join(w.of('p', i) for i in known)}, {events}, {w.once(reduced)} AS f "
        f"FROM (SELECT {keys}, {_collected(w, nothing, fold.read)} AS es FROM {w.name(PAIRS)} GROUP BY {keys}) AS p "
        f"JOIN {w.name(ROWS)} AS w ON {same}) AS p"
    )


def _state(w: Words, fields: Mapping[str, str], read: Schema) -> Mapping[str, str]:
    """Returns the fields of what events are reduced to; with those of an event, if both must have one type."""
    if not w.one_type:
        return fields
    before = {name: value for name, value in fields.items() if name != SEQ}
    return {**before, **{c.name: w.null(c.type) for c in read}, SEQ: fields.get(SEQ, w.null(pa.int64()))}


def _collected(w: Words, nothing: Mapping[str, str], read: Schema) -> str:
    """Returns the events of a group, in their order; with ``nothing`` as what they are reduced to, if both must have
    one type.
    """
    event = {SEQ: w.name(SEQ), **{c.name: w.name(c.name) for c in read}}
    if w.one_type:
        event = {n: event.get(n, nothing.get(n, "")) for n in _state(w, nothing, read)}
    return w.collect(w.struct(event), comparable=not any(_has_map(c.type) for c in read))


def _has_map(dtype: pa.DataType | None) -> bool:
    if dtype is None or pa.types.is_map(dtype):
        return True
    if pa.types.is_struct(dtype):
        return any(_has_map(field.type) for field in dtype)
    return pa.types.is_list(dtype) and _has_map(dtype.value_type)


def _out_type(fold: RowFold) -> pa.DataType | None:
    if fold.returning is None:
        return None
    fields = [(SEQ, pa.int64()), *((f"o{n}", c.type) for n, c in enumerate(fold.returning.into.schema))]
    return pa.list_(pa.struct([pa.field(n, t) for n, t in fields]))


def _single(fold: KeyFold, w: Words, numbered: Sequence[str]) -> str:
    """Renders a fold by the primary key: the state is one row, or none yet (NEVER)."""
    identity = dict(zip(_identities(fold), identity_columns(fold.target), strict=True))
    rows = dict(zip(_row_names(fold), fold.target.schema, strict=True))

    def state(status: str, values: Mapping[str, str], seq: str) -> str:
        return w.struct(_state(w, {ST: status, **values, SEQ: seq}, fold.read))

    nothing = {n: w.null(c.type) for n, c in (*identity.items(), *rows.items())}
    before = {n: w.of("w", n) for n in nothing}
    there = f"CASE WHEN {w.of('w', ST)} IS NULL THEN {w.status(NEVER)} ELSE {w.status(SAME)} END"
    same = {n: w.of(T, n) for n in identity}

    def then(when: When) -> str:
        fresh = {"update": (NEW, CHANGED), "delete": (NEVER, GONE), "insert": (NEW, CHANGED)}[when.action]
        news = f"{NEVER}, {NEW}" if when.action == "insert" else str(NEW)
        status = (
            f"CASE WHEN {w.of(T, ST)} IN ({news}) THEN {w.status(fresh[0])} ELSE {w.status(fresh[1])} END"
        )
        values = [w.sql(v) for v in when.values] or [w.of(T, n) for n in rows]
        return state(status, {**same, **dict(zip(rows, values, strict=True))}, w.of(E, SEQ))

    matched = _first(w, [x for x in fold.whens if x.action != "insert"], then, w.name(T))
    inserted = _first(w, [x for x in fold.whens if x.action == "insert"], then, w.name(T))
    step = f"CASE WHEN {_live(fold, w)} THEN {matched} ELSE {inserted} END"
    names = fold.target.schema.names
    marks = [f"m{n}" for n in range(len(fold.lookup))]
    collected = _collected(w, {ST: w.status(NEVER), **nothing}, fold.read)
    events = _grouped(w, marks, [w.name(c) for _, c in fold.lookup], collected, "es", EVENTS)
    on = " AND ".join(
        f"{w.of('p', m)} = {w.of('w', f'r{names.index(mine)}')}"
        for m, (mine, _) in zip(marks, fold.lookup, strict=True)
    )
    reduced = w.reduce(w.of("p", "es"), T, E, step, state(there, before, w.null(pa.int64())))
    outputs = ", ".join(w.of("f", n) for n in (ST, *identity, *rows, *numbered))
    return (
        f"SELECT {outputs} FROM (SELECT {w.once(reduced)} AS f FROM ({events}) AS p "
        f"LEFT JOIN {w.name(ROWS)} AS w ON {on}) AS y "
        f"WHERE {w.of('f', ST)} NOT IN ({SAME}, {NEVER}){_in_order(w.of('f', SEQ), numbered)}"
    )


def _live(fold: KeyFold, w: Words) -> str:
    """Returns a test whether the row of the fold exists and the event matches it."""
    return f"{w.of(T, ST)} NOT IN ({GONE}, {NEVER}) AND COALESCE({w.sql(fold.on)}, FALSE)"


def _keys(fold: KeyFold, w: Words, numbered: Sequence[str]) -> str:
    identity = dict(zip(_identities(fold), identity_columns(fold.target), strict=True))
    rows = dict(zip(_row_names(fold), fold.target.schema, strict=True))
    fields = [(ST, STATUS), *((n, c.type) for n, c in (*identity.items(), *rows.items())), (SEQ, pa.int64())]
    kept = pa.list_(pa.struct([pa.field(n, t) for n, t in fields]))

    def state(of: str) -> str:
        return w.struct(_state(w, {KEPT: of}, fold.read))

    collected = _collected(w, {KEPT: w.null(kept)}, fold.read)
    before = w.struct(
        {ST: w.status(SAME), **{n: w.name(n) for n in (*identity, *rows)}, SEQ: w.cast("-1", pa.int64())}
    )
    step = state(_merged(fold, w, identity, rows))
    start = state(f"COALESCE({w.of('w', KEPT)}, {w.empty(kept)})")
    names = fold.target.schema.names
    by_row = [w.name(f"r{names.index(mine)}") for mine, _ in fold.lookup]
    by_event = [w.name(theirs) for _, theirs in fold.lookup]
    marks = [f"m{n}" for n in range(len(fold.lookup))]
    same = " AND ".join(f"{w.of('p', m)} = {w.of('w', m)}" for m in marks)
    outputs = ", ".join(w.of("x", n) for n in (ST, *identity, *rows, *numbered))
    return (
        f"SELECT {outputs} FROM (SELECT {w.unnest(w.of('f', KEPT))} AS x FROM ("
        f"SELECT {w.once(w.reduce(w.of('p', 'es'), S, E, step, start))} AS f "
        f"FROM ({_grouped(w, marks, by_event, collected, 'es', EVENTS)}) AS p "
        f"LEFT JOIN ({_grouped(w, marks, by_row, w.gather(before), KEPT, ROWS)}) AS w ON {same or 'TRUE'}"
        f") AS y) AS z WHERE {w.of('x', ST)} > 0{_in_order(w.of('x', SEQ), numbered)}"
    )


def _in_order(seq: str, numbered: Sequence[str]) -> str:
    return "" if numbered else f" ORDER BY {seq}"


def _grouped(w: Words, marks: list[str], by: list[str], collected: str, name: str, view: str) -> str:
    keys = "".join(f"{value} AS {w.name(mark)}, " for mark, value in zip(marks, by, strict=True))
    group = f" GROUP BY {', '.join(by)}" if by else ""
    return f"SELECT {keys}{collected} AS {w.name(name)} FROM {w.name(view)}{group}"


def _merged(fold: KeyFold, w: Words, identity: Mapping[str, Column], rows: Mapping[str, Column]) -> str:
    """Returns the rows of a key after one event."""
    live = _live(fold, w)
    matched = [x for x in fold.whens if x.action != "insert"]
    inserts = [x for x in fold.whens if x.action == "insert"]
    before = w.of(S, KEPT)

    def row(status: str, values: Sequence[str], seq: str, *, new: bool = False) -> str:
        known = {n: w.null(c.type) if new else w.of(T, n) for n, c in identity.items()}
        return w.struct({ST: status, **known, **dict(zip(rows, values, strict=True)), SEQ: seq})

    def changed(when: When) -> str:
        is_new = f"{w.of(T, ST)} = {NEW}"
        a, b = (NEW, CHANGED) if when.action == "update" else (NEVER, GONE)
        status = f"CASE WHEN {is_new} THEN {w.status(a)} ELSE {w.status(b)} END"
        values = [w.sql(v) for v in when.values] or [w.of(T, n) for n in rows]
        return row(status, values, w.of(T, SEQ))

    def inserted(when: When) -> str:
        values = dict(zip(rows, [w.sql(v) for v in when.values], strict=True))
        return w.append(free(values), row(w.status(NEW), list(values.values()), w.of(E, SEQ), new=True))

    def free(values: Mapping[str, str]) -> str:
        """Returns the rows without the one whose key a new row has, because the new row replaces it."""
        names = fold.target.schema.names
        if not fold.target.schema.key:
            return before
        keys = [f"r{names.index(k)}" for k in fold.target.schema.key]
        taken = " AND ".join([f"{w.of(T, ST)} <> {GONE}", *(f"{w.of(T, k)} = {values[k]}" for k in keys)])
        status = f"CASE WHEN {w.of(T, ST)} = {NEW} THEN {w.status(NEVER)} ELSE {w.status(GONE)} END"
        gone = row(status, [w.of(T, n) for n in rows], w.of(T, SEQ))
        left = w.each(before, T, f"CASE WHEN {taken} THEN {gone} ELSE {w.name(T)} END")
        return w.keep(left, T, f"{w.of(T, ST)} <> {NEVER}")

    one = _first(w, matched, changed, w.name(T))
    all_rows = w.each(before, T, f"CASE WHEN {live} THEN {one} ELSE {w.name(T)} END")
    if any(x.action == "delete" for x in matched):
        all_rows = w.keep(all_rows, T, f"{w.of(T, ST)} <> {NEVER}")
    return (
        f"CASE WHEN {w.size(w.keep(before, T, live))} > 0 THEN {all_rows if matched else before} "
        f"ELSE {_first(w, inserts, inserted, before)} END"
    )


def _first(w: Words, whens: list[When], then: Callable[[When], str], otherwise: str) -> str:
    """Returns the first WHEN whose condition is true."""
    made = otherwise
    for when in reversed(whens):
        done = then(when)
        if when.condition is None:
            made = done
        else:
            made = f"CASE WHEN COALESCE({w.sql(when.condition)}, FALSE) THEN {done} ELSE {made} END"
    return made
