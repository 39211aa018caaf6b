"""Adds the hidden columns of messages to the decoded rows."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.connectors.kafka.consumer import HEADERS
from millpond.connectors.source import DELETED
from millpond.formats.keys import Keys, KeyTexts
from millpond.formats.messages.base import Events, Messages
from millpond.formats.read_records import Received, rejected_table
from millpond.types import TIMESTAMP, Column, Schema, whole

_PARTS = ("key", "partition", "offset", "timestamp", "headers")
_FLAT = {"headers": "to_json(headers) AS headers"}
_ALWAYS = ("value", "partition", "offset")
"""What a message is decoded from, and its place."""


def flat(columns: Collection[str] | None, *, keys: bool) -> tuple[str, ...]:
    """Returns the parts of messages, as expressions of Spark, that these columns are made of; all if None. With
    ``keys`` those are decoded in any case.
    """
    needed = None if columns is None else {*_ALWAYS, *(c.lower().removeprefix("_") for c in columns)}
    if needed is not None and keys:
        needed.add("key")
    return tuple(_FLAT.get(p, p) for p in ("value", *_PARTS) if needed is None or p in needed)


def hidden_columns(key_format: str) -> tuple[Column, ...]:
    """Returns the columns that messages have in addition to those of their values."""
    key = pa.binary() if key_format == "raw" else pa.string()
    return (
        Column("_key", key, hidden=True),
        Column("_partition", pa.int32(), hidden=True),
        Column("_offset", pa.int64(), hidden=True),
        Column("_timestamp", TIMESTAMP, hidden=True),
        Column("_headers", HEADERS, hidden=True),
        Column(DELETED, pa.bool_(), hidden=True),
    )


def decoded(
    raw: pa.Table, decoder: Messages, key_texts: KeyTexts | None, hidden: tuple[Column, ...]
) -> tuple[Received, Schema]:
    """Returns the rows of messages, and their fields that are no columns."""
    values = _as_type(raw["value"], pa.binary())
    bare = _as_type(raw["key"], pa.binary()) if "key" in raw.column_names else None
    events, fresh = decoder.events(values), decoder.fresh(values)
    if key_texts is not None:
        assert bare is not None
        keys = key_texts.decode(bare)
        raw = raw.set_column(raw.schema.get_field_index("key"), "key", keys.texts)
        events = _without(events, keys)
    rejected = _rejected(values, bare, events)
    return _received(raw, events, Schema((*decoder.schema, *hidden)), rejected), fresh


def _without(events: Events, keys: Keys) -> Events:
    """Returns the events without those of messages whose keys cannot be decoded."""
    known = set(events.bad)
    fresh = [(b, r) for b, r in zip(keys.bad, keys.reasons, strict=True) if b not in known]
    if not fresh:
        return events
    stays = pa.array(~np.isin(np.asarray(events.places), keys.bad))
    rows, ended, places = (part.filter(stays) for part in events[:3])
    return Events(
        rows, ended, places, [*events.bad, *(b for b, _ in fresh)], [*events.reasons, *(r for _, r in fresh)]
    )


def _rejected(values: pa.Array, keys: pa.Array | None, events: Events) -> pa.Table:
    """Returns the messages that cannot be decoded, with their bytes; without keys if those were not read."""
    bad = pa.array(events.bad, pa.int64())
    of_bad = None if keys is None else keys.take(bad).to_pylist()
    return rejected_table(events.bad, events.reasons, values.take(bad).to_pylist(), of_bad)


def _received(raw: pa.Table, events: Events, columns: Schema, rejected: pa.Table) -> Received:
    """Returns the events with the hidden columns of their messages, which are the last of ``columns``."""
    places = events.places
    every = len(places) == raw.num_rows and np.array_equal(np.asarray(places), np.arange(raw.num_rows))
    good = raw if every else raw.take(places)
    arrays = [*events.rows.columns]
    for name in _PARTS:
        dtype = columns.columns[len(arrays)].type
        if name not in good.column_names:
            arrays.append(pa.nulls(good.num_rows, dtype))
            continue
        as_type = {"key": _key, "headers": _headers}.get(name, _as_type)
        arrays.append(as_type(good[name], dtype))
    batch = pa.RecordBatch.from_arrays([*arrays, events.ended], schema=columns.arrow())
    return Received(batch, places, rejected)


def _as_type(column: pa.ChunkedArray, dtype: pa.DataType | None) -> pa.Array:
    """Returns a column in one chunk, of a type."""
    return whole(column).cast(dtype)


def _headers(column: pa.ChunkedArray, dtype: pa.DataType | None) -> pa.Array:
    """Returns headers, which may be as Spark writes them in JSON: without values that are NULL, others in base64."""
    if not pa.types.is_string(column.type):
        return _as_type(column, dtype)
    if column.null_count == len(column):
        return pa.nulls(len(column), dtype)
    return pa.array(
        [None if t is None else [_header(h) for h in json.loads(t)] for t in column.to_pylist()], dtype
    )


def _header(header: dict[str, str]) -> dict[str, Any]:
    value = header.get("value")
    return {"key": header.get("key"), "value": None if value is None else base64.b64decode(value)}


def _key(column: pa.ChunkedArray, dtype: pa.DataType | None) -> pa.Array:
    """Returns the keys; bytes that are not text are shown as such."""
    keys = _as_type(column, pa.binary())
    if dtype == pa.binary():
        return keys
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if k is None else k.decode(errors="replace") for k in keys.to_pylist()], pa.string()
        )
