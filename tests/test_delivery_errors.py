"""Error records of a batch that is repeated because of a fault before its sink had it: each is there once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond import App
from millpond.changes import Changes, Position
from millpond.streaming.delivery_errors import DeliveryErrors

SHORT = {"reason": pa.string()}
LONG = {"query": pa.string(), "seq": pa.int64(), "row": pa.string(), "reason": pa.string()}


def records(columns: dict[str, pa.DataType], *rows: tuple[Any, ...]) -> dict[str, Changes]:
    values = zip(*rows, strict=True)
    arrays = [pa.array(list(v), t) for v, t in zip(values, columns.values(), strict=True)]
    return {"bad": Changes(pa.table(dict(zip(columns, arrays, strict=True))))}


def put(errors: DeliveryErrors, changes: dict[str, Changes], batch: int) -> None:
    errors.put(changes, Position("a", "", batch, {}))


def values(app: App, column: str) -> list[Any]:
    return sorted(row[column] for row in app.table("bad").all_rows())


def test_what_other_statements_write_hides_no_record() -> None:
    """The table has no column that tells whose record it is."""
    with App("CREATE TABLE bad (reason STRING)") as app:
        store = app._runtime.store
        errors = DeliveryErrors(store, "a", "bad")
        put(errors, records(SHORT, ("a: row 1",)), 0)  # and a fault
        app.table("bad").insert({"reason": "b: a row"})
        errors = DeliveryErrors(store, "a", "bad")
        put(errors, records(SHORT, ("a: row 1",)), 0)
        errors.noted()
        put(errors, records(SHORT, ("a: row 2",)), 1)
        errors.noted()
        assert values(app, "reason") == ["a: row 1", "a: row 2", "b: a row"]


def test_another_engine_may_word_the_reason_in_another_way() -> None:
    with App("CREATE TABLE bad (query STRING, seq BIGINT, row STRING, reason STRING)") as app:
        store = app._runtime.store
        errors = DeliveryErrors(store, "a", "bad")
        put(errors, records(LONG, ("a", 1, '{"id": 1}', "in the words of one"), ("a", 2, "{}", "x")), 0)
        errors = DeliveryErrors(store, "a", "bad")
        put(errors, records(LONG, ("a", 1, '{"id": 1}', "in those of the other"), ("a", 2, "{}", "y")), 0)
        errors.noted()
        assert values(app, "seq") == [1, 2]
