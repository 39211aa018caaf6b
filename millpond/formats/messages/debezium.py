"""Decodes Debezium's envelopes: the row before and after a change, and the operation.

``{"before": {…}, "after": {…}, "op": "c"}``, by itself or as the ``payload`` next to a ``schema``. ``op`` is c
(created), r (read in a snapshot), u (updated) or d (deleted). A message without a value follows a deletion and contains
nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.formats.jsontypes import discover_records
from millpond.formats.messages.base import Events, Messages, others
from millpond.formats.messages.json import JsonMessages, having, json_object, readable
from millpond.formats.wire import Schemas
from millpond.types import Column, Schema


def _columns(sample: list[bytes]) -> Schema:
    rows: list[dict[str, Any]] = []
    for text in sample:
        envelope = json_object(text)
        envelope = envelope["payload"] if isinstance(envelope.get("payload"), dict) else envelope
        rows += [r for r in (envelope.get("before"), envelope.get("after")) if isinstance(r, dict)]
    return discover_records(rows)


class Envelopes(Messages):
    """Decodes envelopes of rows with the columns of a schema. If an envelope does not contain the row that an update
    replaced, it is the new one.
    """

    name = "debezium"

    def __init__(
        self,
        schema: Schema,
        values: Mapping[str, Any],
        *,
        watch: bool = False,
        schemas: Schemas | None = None,
    ):
        super().__init__(schema, values, watch=watch, schemas=schemas)
        row = pa.struct([pa.field(c.name, c.type) for c in schema])
        inner = (Column("before", row), Column("after", row), Column("op", pa.string()))
        payload = pa.struct([pa.field(c.name, c.type) for c in inner])
        self._messages = JsonMessages(Schema((Column("payload", payload), *inner)), values, watch=watch)

    @classmethod
    def discover(cls, sample: list[bytes], values: Mapping[str, Any]) -> Schema:
        return _columns(readable(sample) or sample)

    def fresh(self, values: pa.Array) -> Schema:
        names = {p[-1] for p in self._messages.seen() if len(p) > 1 and p[-2] in ("before", "after")}
        return others(_columns(having(values, names)), self.schema)

    def events(self, values: pa.Array) -> Events:
        here = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        values = values.take(pa.array(here))
        found, bad, reasons = self._messages.decode(values)
        places = np.delete(here, bad)
        # An envelope is alone, or next to its schema as the payload of a message.
        wrapped = found.column(0).is_valid().to_numpy(zero_copy_only=False)
        which = pa.array(np.where(wrapped, 0, len(places)) + np.arange(len(places)))
        inner, outer = found.column(0).flatten(), found.columns[1:]
        before, after, op = (pa.concat_arrays([i, o]).take(which) for i, o in zip(inner, outer, strict=True))
        wrong = pc.fill_null(pc.invert(pc.is_in(op, pa.array(["c", "r", "u", "d"]))), True)
        lost = pc.or_(
            wrong, pc.if_else(pc.equal(op, "d"), before.is_null(), pc.if_else(wrong, True, after.is_null()))
        )
        rejected = np.flatnonzero(pc.fill_null(lost, True).to_numpy(zero_copy_only=False))
        bad = [int(here[b]) for b in bad] + [int(places[s]) for s in rejected]
        reasons = reasons + ['it is no envelope: "op", "before" or "after" is missing'] * len(rejected)
        keep = np.ones(len(places), dtype=bool)
        keep[rejected] = False
        return self._events(before, after, op, places, keep, bad, reasons)

    def _events(
        self,
        before: pa.Array,
        after: pa.Array,
        op: pa.Array,
        places: np.ndarray,
        keep: np.ndarray,
        bad: list[int],
        reasons: list[str],
    ) -> Events:
        is_end = pc.equal(op, "d").to_numpy(zero_copy_only=False).astype(bool)
        replaced = pc.equal(op, "u").to_numpy(zero_copy_only=False).astype(bool)
        ends = np.flatnonzero(keep & (is_end | replaced))
        lives = np.flatnonzero(keep & ~is_end)
        order = np.argsort(np.concatenate([ends * 2, lives * 2 + 1]), kind="stable")
        # Without `before` an update does not contain the old row; its key is assumed to be unchanged.
        old = pc.if_else(before.is_valid(), before, after)
        rows = pa.concat_arrays([old.take(pa.array(ends)), after.take(pa.array(lives))]).take(pa.array(order))
        ended = np.concatenate([np.ones(len(ends), dtype=bool), np.zeros(len(lives), dtype=bool)])[order]
        at = places[np.concatenate([ends, lives])[order]] if len(order) else places[:0]
        batch = pa.RecordBatch.from_arrays(rows.flatten(), schema=self.schema.arrow())
        return Events(batch, pa.array(ended), pa.array(at, pa.int64()), bad, reasons)
