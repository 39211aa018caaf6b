"""Filling tables from sources that have an end, chunk by chunk, each with its position in one commit."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.app.health import Load
from millpond.app.indexes import renew_indexes
from millpond.app.store import Moment, Store
from millpond.changes import Changes, Offset, Position
from millpond.errors import Closed
from millpond.plan.plans import LoadPlan
from millpond.query.evaluate import Evaluator
from millpond.sources.base import SEQ, Source
from millpond.sql.checked import Checked

if TYPE_CHECKING:
    from millpond.app.app import App

CHUNK = 131_072
"""Rows of a chunk."""

_LOADED = "loaded"
_REPORTING = threading.Lock()
"""Reports of several loads come one after another."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a load has come: rows, of how many where the source knows, and bytes, of how many where it knows."""

    table: str
    rows: int
    bytes: int
    total: int | None
    of: int | None = None
    finished: bool = False


Report = Callable[[Progress], None]
Inputs = Callable[[Moment], Mapping[str, pa.Table]]
"""The tables that a query meets beside the source, by view."""


def is_loaded(position: Position | None, checkpoint: str) -> bool:
    return position is not None and position.checkpoint == checkpoint and _LOADED in position.offsets


def fingerprint(offset: Offset) -> str:
    """The identity of a load: the offset up to which it reads."""
    return hashlib.sha256(json.dumps(offset, sort_keys=True).encode()).hexdigest()[:16]


def load_chunks(
    plan: LoadPlan,
    source: Source,
    end: Offset,
    store: Store,
    evaluator: Evaluator,
    inputs: Inputs,
    report: Report,
) -> int:
    """Reads the source up to ``end`` into the target, going on where an earlier load stopped."""
    assert plan.by is not None
    checkpoint = fingerprint(end)
    position = store.position(plan.name)
    begun = position is not None and position.checkpoint == checkpoint
    skip = position.batch + 1 if begun and position is not None else 0
    splits = source.splits(None, end)
    total, of = _sum(s.bytes for s in splits), _sum(s.rows for s in splits)
    rows = seen = number = 0
    report(Progress(plan.target.name, 0, 0, total, of))
    for number, (chunk, read) in enumerate(_chunks(source, end)):
        seen = read
        if number < skip:
            continue
        tables = {plan.by.view: chunk, **inputs(store.moment())}
        found = evaluator.answer(plan.query, tables)
        rows += found.num_rows
        store.commit({plan.target.name: Changes(found)}, Position(plan.name, checkpoint, number))
        report(Progress(plan.target.name, rows, seen, total, of))
    end_of_it = Position(plan.name, checkpoint, max(number, skip) + 1, {_LOADED: end})
    store.commit({plan.target.name: Changes(plan.query.schema.arrow().empty_table())}, end_of_it)
    report(Progress(plan.target.name, rows, seen, total, of, finished=True))
    return rows


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(n for n in found if n is not None)


def _chunks(source: Source, end: Offset) -> Iterator[tuple[pa.Table, int]]:
    """Chunks of the same rows each time, and the bytes read so far."""
    schema = pa.schema([pa.field(c.name, c.type) for c in source.schema()])
    held: list[pa.RecordBatch] = []
    rows = read = 0
    for split in source.splits(None, end):
        before = read
        for batch in source.read(split):
            held.append(batch.drop_columns([SEQ]))
            rows += batch.num_rows
            # How much of the file a batch was is not known: its size in memory stands for it.
            read = min(read + batch.nbytes, before + (split.bytes or 0))
            if rows >= CHUNK:
                yield pa.Table.from_batches(held, schema), read
                held, rows = [], 0
        read = before + (split.bytes or 0)
    if held:
        yield pa.Table.from_batches(held, schema), read


def read_all(source: Source) -> pa.Table:
    """Everything that a source has now."""
    schema = pa.schema([pa.field(c.name, c.type) for c in source.schema()])
    end = source.latest(None)
    batches = [b.drop_columns([SEQ]) for s in source.splits(None, end) for b in source.read(s)]
    return pa.Table.from_batches(batches, schema)


def is_from_outside(app: App, plan: LoadPlan) -> bool:
    """Whether a load needs nothing of this process, and can run beside what it does."""
    inputs = [i.relation for i in plan.query.inputs]
    return all(r.kind == "source" and not app._source(r).local for r in inputs)


def load(app: App, plan: LoadPlan, checked: Checked) -> int:
    """Fills a table from its sources; what was loaded before a restart is not loaded again."""
    name = plan.target.name.lower()
    sources = [i.relation.name for i in plan.query.inputs if i.relation.kind == "source"]
    what = app._mask(", ".join(sources)) or "tables"
    kind = sources[0].partition(":")[0] if sources else "table"
    app._loads[name] = Load(kind, what, began=time.time())
    try:
        rows = _load(app, plan, checked)
    except Exception as error:
        app._loads[name] = replace(app._loads[name], error=app._mask(str(getattr(error, "message", error))))
        raise
    changed = app._backend(name).stats().get("changed_at")
    app._loads[name] = replace(app._loads[name], ended=time.time(), loaded_at=changed or time.time())
    return rows


def _load(app: App, plan: LoadPlan, checked: Checked) -> int:
    def report(progress: Progress) -> None:
        if app._closed:
            raise Closed("the app is closed")
        name = plan.target.name.lower()
        share = progress.bytes / progress.total if progress.total else None
        app._loads[name] = replace(app._loads[name], rows=progress.rows, of=progress.of, share=share)
        with _REPORTING:
            app._on_progress(progress)

    app._store.fills(plan.name, plan.target.name)
    position = app._store.position(plan.name)
    if plan.by is None:
        end = {
            i.relation.name: app._source(i.relation).latest(None)
            for i in plan.query.inputs
            if i.relation.kind == "source"
        }
        checkpoint = fingerprint(end)
        if position is not None and position.checkpoint == checkpoint:
            return 0
        _reload(app, plan, position)
        rows = app._answer(checked)
        app._store.commit(
            {plan.target.name: Changes(rows)}, Position(plan.name, checkpoint, 0, {"loaded": end})
        )
        report(Progress(plan.target.name, rows.num_rows, 0, None, finished=True))
        return int(rows.num_rows)
    source = app._source(plan.by.relation)
    until = source.latest(None)
    checkpoint = fingerprint(until)
    if is_loaded(position, checkpoint):
        return 0
    if position is not None and position.checkpoint != checkpoint:
        _reload(app, plan, position)
    return load_chunks(
        plan,
        source,
        until,
        app._store,
        app._evaluator,
        lambda moment: app._inputs(plan.query, moment, plan.by),
        report,
    )


def _reload(app: App, plan: LoadPlan, position: Position | None) -> None:
    """Empties a table whose source has changed since it was loaded."""
    if position is None:
        return
    relation = app._catalog.find(plan.target.name)
    assert relation is not None
    options = app._table_options[relation.name.lower()]
    app._store.empty(relation.name, relation, str(options.get("extension") or "memory"), options)
    renew_indexes(app, relation.name)
    app._store.forget(plan.name)
    app._store.fills(plan.name, plan.target.name)
