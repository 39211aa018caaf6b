"""Envelopes of Debezium: alone or beside their schema, message by message."""

from __future__ import annotations

import json

import pyarrow as pa

from millpond.formats.messages.debezium import Envelopes
from millpond.types import Column, Schema

COLUMNS = Schema((Column("id", pa.int64()), Column("payload", pa.string())))


def test_each_message_by_itself() -> None:
    """A row may well have a column "payload", as those of an outbox do."""
    one = {"op": "c", "before": None, "after": {"id": 1, "payload": "x"}}
    two = {"op": "u", "before": {"id": 1, "payload": "x"}, "after": {"id": 2, "payload": "payload"}}
    three = {"op": "d", "before": {"id": 2, "payload": "payload"}, "after": None}
    messages = [one, {"schema": {}, "payload": two}, three, {"schema": {}, "payload": {"op": "x"}}, {"no": 1}]
    values = pa.array([json.dumps(m).encode() for m in messages], pa.binary())
    rows, ended, places, bad, reasons = Envelopes(COLUMNS, {}).events(values)
    assert rows.to_pylist() == [
        {"id": 1, "payload": "x"},
        {"id": 1, "payload": "x"},
        {"id": 2, "payload": "payload"},
        {"id": 2, "payload": "payload"},
    ]
    assert ended.to_pylist() == [False, True, False, True]
    assert places.to_pylist() == [0, 1, 1, 2]
    assert sorted(bad) == [3, 4] and len(reasons) == 2


def test_an_update_that_does_not_say_what_the_row_was() -> None:
    """Databases leave `before` out unless they are told to log it: the row had the key that it has."""
    update = {"op": "u", "before": None, "after": {"id": 1, "payload": "new"}}
    rows, ended, places, bad, _ = Envelopes(COLUMNS, {}).events(pa.array([json.dumps(update).encode()]))
    assert rows.to_pylist() == [{"id": 1, "payload": "new"}] * 2
    assert (ended.to_pylist(), places.to_pylist(), bad) == ([True, False], [0, 0], [])
