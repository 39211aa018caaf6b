"""Commits error records of a batch before its sink has the batch, each once, also if the batch is repeated.

They are committed with a mark: for which batch, and from which row of the error table on. If the mark is ahead of the
position of the query, a fault came before the sink had the batch; the records from there on are not added again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes, Position
from millpond.store.error_records import of_messages

if TYPE_CHECKING:
    from millpond.store.store import Store

_TELLING = {"query", "seq", "row"}
"""Columns that together tell which row of which query a record is of."""


def position_of_errors(query: str) -> str:
    """Returns the name of the position that stores which error records of a query are committed."""
    return f"{query}$aside"


class DeliveryErrors:
    """Commits the error records of a query, from the opening of its sink until it is opened again."""

    def __init__(self, store: Store, query: str, errors: str):
        self._store = store
        self._name = position_of_errors(query)
        self._errors = errors
        self._mark = store.position(self._name)
        self._first: int | None = None
        self._there: Counter[tuple[Any, ...]] = Counter()
        """Records that are in the error table, and whose rows may be delivered again."""
        self._batch: Counter[tuple[Any, ...]] = Counter()
        ours = store.position(query)
        if self._mark is not None and (ours is None or ours.batch < self._mark.offsets["at"]["of"]):
            self._first = int(self._mark.offsets["at"]["from"])
            rows = store.snapshots().snapshot(errors).scan(rows=True)
            late = rows.filter(pc.greater_equal(rows[ROW], self._first)).drop_columns([ROW])
            self._there = Counter(_records(late))

    def put(self, more: Mapping[str, Changes], position: Position | None) -> None:
        """Commits the error records of a batch, without those that exist already."""
        table = self._store.table(self._errors)
        name = next((n for n in more if n.lower() == self._errors.lower()), None)
        if name is None or position is None or table is None or table.next_row is None:
            self._store.write(lambda snapshots: (more, None), None, into=tuple(more))
            return
        rows, there = more[name].rows, self._there.copy()
        records = _records(rows)
        kept = []
        for record in records:
            kept.append(not there[record])
            there[record] -= there[record] > 0
        fresh = {**more, name: Changes(rows.filter(pa.array(kept, pa.bool_())))}
        first = table.next_row if self._first is None else self._first
        number = 0 if self._mark is None else self._mark.batch + 1
        mark = Position(self._name, "", number, {"at": {"of": position.batch, "from": first}})
        self._store.write(lambda snapshots: (fresh, None), mark, into=tuple(more))
        self._mark, self._first, self._batch = mark, first, Counter(records)
        self._there = there + self._batch

    def noted(self) -> None:
        """Records that the batch is committed: another one may have the same error records."""
        self._there -= self._batch
        self._batch = Counter()
        if not self._there:
            self._first = None


def _records(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Returns what tells the records apart: not their times, and of rows not the reasons, which another engine words
    in another way, unless the table lacks a column that tells them apart without. Those of messages are the same
    everywhere, and say how many rows were lost.
    """
    known = {name.lower(): name for name in rows.column_names}
    without_time = sorted(n for low, n in known.items() if low not in ("time", ROW))
    if "reason" not in known or not known.keys() >= _TELLING:
        return [tuple(record.values()) for record in rows.select(without_time).to_pylist()]
    reason = known["reason"]
    names = [n for n in without_time if n != reason]
    records = [tuple(record.values()) for record in rows.select(names).to_pylist()]
    are_messages = of_messages(rows[known["row"]]).to_pylist()
    reasons = rows[reason].to_pylist()
    return [(*r, why if m else None) for r, why, m in zip(records, reasons, are_messages, strict=True)]
