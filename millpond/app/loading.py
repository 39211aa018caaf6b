"""Filling tables from sources that have an end, chunk by chunk, each with its position in one commit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from millpond.app.store import Moment, Store
from millpond.changes import Changes, Offset, Position
from millpond.plan.plans import LoadPlan
from millpond.query.evaluate import Evaluator
from millpond.sources.base import SEQ, Source

CHUNK = 131_072
"""Rows of a chunk."""

_LOADED = "loaded"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a load has come; ``total`` in bytes where the source knows, else None."""

    table: str
    rows: int
    bytes: int
    total: int | None
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
    position = store.journal.position(plan.name)
    begun = position is not None and position.checkpoint == checkpoint
    skip = position.batch + 1 if begun and position is not None else 0
    splits = source.splits(None, end)
    sizes = [s.bytes for s in splits]
    total = sum(s for s in sizes if s is not None) if None not in sizes else None
    rows = seen = number = 0
    for number, (chunk, read) in enumerate(_chunks(source, end)):
        seen = read
        if number < skip:
            continue
        tables = {plan.by.view: chunk, **inputs(store.moment())}
        found = evaluator.answer(plan.query, tables)
        rows += found.num_rows
        store.commit({plan.target.name: Changes(found)}, Position(plan.name, checkpoint, number))
        report(Progress(plan.target.name, rows, seen, total))
    store.commit(position=Position(plan.name, checkpoint, max(number, skip) + 1, {_LOADED: end}))
    report(Progress(plan.target.name, rows, seen, total, finished=True))
    return rows


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
