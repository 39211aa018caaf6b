"""Stores which file the rows of a table come from: for each file the hashes of its rows, in the commits of the table.

When a file is removed its rows remain valid, and nobody can read them again. Their hashes find them in the table, so
that a comparison with rewritten files leaves them as they are, and deletes all others that should be deleted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Changes
from millpond.connectors.source import SEQ
from millpond.plan.plans import LoadPlan
from millpond.query.evaluate import Evaluator
from millpond.sql.catalog import Relation
from millpond.store.store import Store
from millpond.types import Column, Schema

Hashes = npt.NDArray[np.uint64]
_EVERY = -1
"""The part of a record without hashes: if it exists, a part that has no record had no rows."""
_SCHEMA = Schema(
    (
        Column("part", pa.int64(), False),
        Column("first", pa.int64(), False),
        Column("made_by", pa.string()),
        Column("hashes", pa.binary()),
    ),
    ("part", "first"),
)


def origins_table(query: str) -> str:
    return f"{query}$files"


class Origins:
    """Stores the hashes of the rows of one table, by the parts of its source (files) that they come from."""

    def __init__(self, store: Store, evaluator: Evaluator, plan: LoadPlan):
        self._store = store
        self._evaluator = evaluator
        self.table = origins_table(plan.name)
        store.create(Relation(self.table, "table", _SCHEMA), *store.companion_of(plan.target.name))

    def of(self, rows: pa.Table, seqs: pa.ChunkedArray, parts: npt.NDArray[np.int64]) -> pa.Table:
        """Returns the records of rows that were read: one for each part of the source."""
        hashes = self._hashes(rows)
        if len(parts) and parts[0] == parts[-1] and (parts == parts[0]).all():
            first = int(seqs.to_numpy().min())
            record = [[int(parts[0])], [first], [self._made_by], [hashes.tobytes()]]
            return pa.table(record, schema=_SCHEMA.arrow())
        order = np.argsort(parts, kind="stable")
        numbers, begins = np.unique(parts[order], return_index=True)
        firsts = np.minimum.reduceat(seqs.to_numpy()[order], begins) if len(order) else np.empty(0, np.int64)
        pieces = np.split(hashes[order], begins[1:]) if len(order) else []
        return pa.table(
            [numbers, firsts, [self._made_by] * len(numbers), [p.tobytes() for p in pieces]],
            schema=_SCHEMA.arrow(),
        )

    def every(self) -> pa.Table:
        """Returns the record that says that the rows of every part are recorded."""
        return pa.table([[_EVERY], [0], [self._made_by], [b""]], schema=_SCHEMA.arrow())

    def renewed(self, records: pa.Table, kept: frozenset[int] | None) -> Changes:
        """Returns the changes that replace all records, except those of the parts that are ``kept``; None if these are
        not known.
        """
        known = self._store.backend(self.table).snapshot().scan()
        gone = known.filter(pc.invert(pc.is_in(known["part"], pa.array([_EVERY, *(kept or ())], pa.int64()))))
        if kept == frozenset():
            records = pa.concat_tables([records, self.every()])
        deleted = np.zeros(gone.num_rows + records.num_rows, bool)
        deleted[: gone.num_rows] = True
        return Changes(pa.concat_tables([gone, records]), pa.array(deleted))

    def find(self, rows: pa.Table, parts: frozenset[int]) -> pa.Table | None:
        """Returns those of the rows that come from these parts; None if that is not known of all of them."""
        known = self._store.backend(self.table).snapshot().scan()
        every = pc.any(pc.equal(known["part"], _EVERY)).as_py()
        known = known.filter(pc.is_in(known["part"], pa.array(sorted(parts), pa.int64())))
        if not every and set(known["part"].to_pylist()) != parts:
            return None
        if set(known["made_by"].to_pylist()) - {self._made_by}:
            return None
        wanted = np.frombuffer(b"".join(known["hashes"].to_pylist()), np.uint64)
        return rows.filter(pa.array(_as_often(self._hashes(rows), wanted)))

    @property
    def _made_by(self) -> str:
        return f"duckdb {self._evaluator.version}"

    def _hashes(self, rows: pa.Table) -> Hashes:
        named = rows.rename_columns([f"c{i}" for i in range(rows.num_columns)])
        listed = ", ".join(named.column_names)
        found = self._evaluator.duckdb(f"SELECT hash({listed}) AS h FROM r", {"r": named})
        return np.asarray(found["h"].to_numpy(), np.uint64)


def _as_often(hashes: Hashes, wanted: Hashes) -> npt.NDArray[np.bool_]:
    """Returns which of the hashes are among the wanted ones, each at most as often as it occurs there."""
    values, counts = np.unique(wanted, return_counts=True)
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    begins = np.searchsorted(ordered, ordered, side="left")
    rank = np.arange(len(ordered)) - begins
    place = np.minimum(np.searchsorted(values, ordered), max(len(values) - 1, 0))
    found = np.zeros(len(hashes), bool)
    if len(values):
        found[order] = (values[place] == ordered) & (rank < counts[place])
    return found


def without_seq(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([SEQ]) if SEQ in rows.column_names else rows
