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
from millpond.sql.render.words import STATUS, Words
from millpond.types import Column

S = "__s"
ST = "st"
OUT = "out"
"""The rows of RETURNING, as a list of structs with ``seq`` and o0, o1, …"""


def render_fold(fold: Fold, words: Words) -> str:
    """Returns the query of a fold. It reads PAIRS and ROWS, or EVENTS and ROWS, and returns ``st``, i0, …, r0, …"""
    if isinstance(fold, RowFold):
        return _rows(fold, words)
    return _single(fold, words) if fold.single else _keys(fold, words)


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
    event = {c.name: w.null(c.type) for c in fold.read}

    def item(status: str, row: Mapping[str, str], read: Mapping[str, str], returned: str) -> str:
        more = {OUT: returned} if out is not None else {}
        return w.struct({ST: status, **row, **read, SEQ: read.get(SEQ, w.null(pa.int64())), **more})

    no_row = {name: w.null(c.type) for name, c in rows.items()}
    collected = item(
        w.status(SAME),
        no_row,
        {c.name: w.name(c.name) for c in fold.read} | {SEQ: w.name(SEQ)},
        w.null(out) if out is not None else "",
    )
    start = item(
        w.of("w", ST),
        {name: w.of("w", name) for name in rows},
        event,
        w.empty(out) if out is not None else "",
    )
    if fold.values:
        status, row = w.status(CHANGED), {n: w.sql(v) for n, v in zip(rows, fold.values, strict=True)}
        applies = [] if fold.rest is None else [f"COALESCE({w.sql(fold.rest)}, FALSE)"]
    else:
        status, row = w.status(GONE), {name: w.of(T, name) for name in rows}
        applies = [f"{w.of(T, ST)} <> {w.status(GONE)}"]
    returned = ""
    if fold.returning is not None:
        values = {f"o{n}": w.sql(v) for n, v in enumerate(fold.returning.values)}
        returned = w.append(w.of(T, OUT), w.struct({SEQ: w.of(E, SEQ), **values}))
    step = item(status, row, event, returned)
    if applies:
        step = f"CASE WHEN {' AND '.join(applies)} THEN {step} ELSE {w.name(T)} END"
    known = _identities(fold)
    keys = ", ".join(w.name(i) for i in known)
    same = " AND ".join(f"{w.same(w.of('p', i), w.of('w', i))}" for i in known)
    found = [ST, *rows, *([OUT] if out is not None else [])]
    outputs = [w.of("f", ST), *(w.name(i) for i in known), *(w.of("f", n) for n in found[1:])]
    return (
        f"SELECT {', '.join(outputs)} FROM ("
        f"SELECT {', '.join(w.of('p', i) for i in known)}, {w.reduce(w.of('p', 'es'), T, E, step, start)} AS f "
        f"FROM (SELECT {keys}, {w.collect(collected)} AS es FROM {w.name(PAIRS)} GROUP BY {keys}) AS p "
        f"JOIN {w.name(ROWS)} AS w ON {same}) AS x"
    )


def _out_type(fold: RowFold) -> pa.DataType | None:
    if fold.returning is None:
        return None
    fields = [(SEQ, pa.int64()), *((f"o{n}", c.type) for n, c in enumerate(fold.returning.into.schema))]
    return pa.list_(pa.struct([pa.field(n, t) for n, t in fields]))


def _single(fold: KeyFold, w: Words) -> str:
    """Renders a fold by the primary key: the state is one row, or none yet (NEVER)."""
    identity = dict(zip(_identities(fold), identity_columns(fold.target), strict=True))
    rows = dict(zip(_row_names(fold), fold.target.schema, strict=True))
    event = {c.name: w.null(c.type) for c in fold.read}

    def item(status: str, values: Mapping[str, str], read: Mapping[str, str], seq: str) -> str:
        return w.struct({ST: status, **values, **read, SEQ: seq})

    nothing = {n: w.null(c.type) for n, c in (*identity.items(), *rows.items())}
    given = {c.name: w.name(c.name) for c in fold.read}
    collected = item(w.status(NEVER), nothing, given, w.name(SEQ))
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
        return item(status, {**same, **dict(zip(rows, values, strict=True))}, event, w.of(E, SEQ))

    matched = _first(w, [x for x in fold.whens if x.action != "insert"], then, w.name(T))
    inserted = _first(w, [x for x in fold.whens if x.action == "insert"], then, w.name(T))
    step = f"CASE WHEN {_live(fold, w)} THEN {matched} ELSE {inserted} END"
    names = fold.target.schema.names
    marks = [f"m{n}" for n in range(len(fold.lookup))]
    events = _grouped(w, marks, [w.name(c) for _, c in fold.lookup], w.collect(collected), "es", EVENTS)
    on = " AND ".join(
        f"{w.of('p', m)} = {w.of('w', f'r{names.index(mine)}')}"
        for m, (mine, _) in zip(marks, fold.lookup, strict=True)
    )
    reduced = w.reduce(w.of("p", "es"), T, E, step, item(there, before, event, w.null(pa.int64())))
    outputs = ", ".join(w.of("f", n) for n in (ST, *identity, *rows))
    return (
        f"SELECT {outputs} FROM (SELECT {reduced} AS f FROM ({events}) AS p "
        f"LEFT JOIN {w.name(ROWS)} AS w ON {on}) AS y "
        f"WHERE {w.of('f', ST)} NOT IN ({SAME}, {NEVER}) ORDER BY {w.of('f', SEQ)}"
    )


def _live(fold: KeyFold, w: Words) -> str:
    """Returns a test whether the row of the fold exists and the event matches it."""
    return f"{w.of(T, ST)} NOT IN ({GONE}, {NEVER}) AND COALESCE({w.sql(fold.on)}, FALSE)"


def _keys(fold: KeyFold, w: Words) -> str:
    identity = dict(zip(_identities(fold), identity_columns(fold.target), strict=True))
    rows = dict(zip(_row_names(fold), fold.target.schema, strict=True))
    fields = [(ST, STATUS), *((n, c.type) for n, c in (*identity.items(), *rows.items())), (SEQ, pa.int64())]
    kept = pa.list_(pa.struct([pa.field(n, t) for n, t in fields]))
    event = {c.name: w.null(c.type) for c in fold.read}

    def state(of: str, read: Mapping[str, str]) -> str:
        return w.struct({"rows": of, **event, SEQ: w.null(pa.int64()), **read})

    collected = state(w.null(kept), {c.name: w.name(c.name) for c in fold.read} | {SEQ: w.name(SEQ)})
    before = w.struct(
        {ST: w.status(SAME), **{n: w.name(n) for n in (*identity, *rows)}, SEQ: w.cast("-1", pa.int64())}
    )
    step = state(_merged(fold, w, identity, rows), {})
    start = state(f"COALESCE({w.of('w', 'rows')}, {w.empty(kept)})", {})
    names = fold.target.schema.names
    by_row = [w.name(f"r{names.index(mine)}") for mine, _ in fold.lookup]
    by_event = [w.name(theirs) for _, theirs in fold.lookup]
    marks = [f"m{n}" for n in range(len(fold.lookup))]
    same = " AND ".join(f"{w.of('p', m)} = {w.of('w', m)}" for m in marks)
    outputs = ", ".join(w.of("x", n) for n in (ST, *identity, *rows))
    return (
        f"SELECT {outputs} FROM (SELECT {w.unnest(w.of('f', 'rows'))} AS x FROM ("
        f"SELECT {w.reduce(w.of('p', 'es'), S, E, step, start)} AS f "
        f"FROM ({_grouped(w, marks, by_event, w.collect(collected), 'es', EVENTS)}) AS p "
        f"LEFT JOIN ({_grouped(w, marks, by_row, w.gather(before), 'rows', ROWS)}) AS w ON {same or 'TRUE'}"
        f") AS y) AS z WHERE {w.of('x', ST)} > 0 ORDER BY {w.of('x', SEQ)}"
    )


def _grouped(w: Words, marks: list[str], by: list[str], collected: str, name: str, view: str) -> str:
    keys = "".join(f"{value} AS {w.name(mark)}, " for mark, value in zip(marks, by, strict=True))
    group = f" GROUP BY {', '.join(by)}" if by else ""
    return f"SELECT {keys}{collected} AS {w.name(name)} FROM {w.name(view)}{group}"


def _merged(fold: KeyFold, w: Words, identity: Mapping[str, Column], rows: Mapping[str, Column]) -> str:
    """Returns the rows of a key after one event."""
    live = _live(fold, w)
    matched = [x for x in fold.whens if x.action != "insert"]
    inserts = [x for x in fold.whens if x.action == "insert"]
    before = w.of(S, "rows")

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
