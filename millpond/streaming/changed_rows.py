"""Makes what is written of the changes of a table: evaluates the query on the rows before and after each change, and
compares.

A row that begins to match the WHERE of the query is inserted, one that no longer does is deleted, and a change that no
output of the query shows is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.changelog import (
    ADDED,
    CHANGED,
    DELETED,
    FIRST,
    GONE,
    KEY,
    NEW,
    OLD,
    OP,
    ORIGIN,
    READ,
    TIME,
    WORDS,
)
from millpond.connectors.source import SEQ
from millpond.plan.plans import ChangesPlan
from millpond.records.keys import key_list
from millpond.streaming.message_keys import key_texts
from millpond.tables.base import Snapshot
from millpond.types import whole

Ints = npt.NDArray[np.int64]
Evaluate = Callable[[pa.Table], pa.Table]
"""Returns the results of the query for rows of the table with ``_seq``, which they have too, in its order."""


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Contains changes: their places in the changelog, and those of the rows before and after them among the results
    of the query, -1 for none.
    """

    at: Ints
    old: Ints
    new: Ints

    def taken(self, which: npt.NDArray[np.bool_] | Ints) -> _Pairs:
        return _Pairs(self.at[which], self.old[which], self.new[which])

    @property
    def both(self) -> npt.NDArray[np.bool_]:
        """Returns where there is a row before and one after the change."""
        found: npt.NDArray[np.bool_] = (self.old >= 0) & (self.new >= 0)
        return found

    @property
    def shown(self) -> Ints:
        """Returns the place of the row after the change, or of the one that it deleted."""
        return np.where(self.new >= 0, self.new, self.old)


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Makes what a statement writes of rows of a changelog."""

    plan: ChangesPlan

    def of(self, log: pa.Table, evaluate: Evaluate) -> pa.Table:
        found = evaluate(self._images(log))
        arrow = self.plan.batch.output.arrow()
        rows = found.drop_columns([SEQ]).rename_columns(arrow.names).cast(arrow).combine_chunks()
        pairs = self._pairs(log, rows, found[SEQ].to_numpy())
        form = self.plan.form
        made = self._rows(log, rows, pairs) if form.envelope == "rows" else self._envelopes(log, rows, pairs)
        return made.select(list(self.plan.written.names)).cast(self.plan.written.arrow())

    def _images(self, log: pa.Table) -> pa.Table:
        """Returns the rows before and after the changes; those of one change have neighbouring numbers."""
        ops, names = log[OP].to_numpy(), [n[1:] for n in log.column_names if n.startswith(NEW)]
        parts = []
        for number, (which, without) in enumerate(((OLD, (READ, ADDED)), (NEW, (GONE,)))):
            there = np.flatnonzero(~np.isin(ops, without))
            image = log.select([f"{which}{n}" for n in names]).rename_columns(names).take(pa.array(there))
            parts.append(image.append_column(SEQ, pa.array(2 * there + number, pa.int64())))
        return pa.concat_tables(parts)

    def _pairs(self, log: pa.Table, rows: pa.Table, numbers: Ints) -> _Pairs:
        places = np.full((log.num_rows, 2), -1, np.int64)
        places[numbers >> 1, numbers & 1] = np.arange(len(numbers))
        pairs = _Pairs(np.arange(log.num_rows), places[:, 0], places[:, 1])
        pairs = pairs.taken((pairs.old >= 0) | (pairs.new >= 0))
        moved = self._differing(rows, pairs, self.plan.named_by)
        keep = self._differing(rows, pairs, rows.column_names) | ~pairs.both
        pairs, moved = pairs.taken(keep), moved[keep]
        if moved.any():  # its old key is deleted, its new one is inserted
            gone, came = pairs.taken(moved), pairs.taken(moved)
            stays = pairs.taken(~moved)
            none = np.full(len(gone.at), -1, np.int64)
            pairs = _Pairs(
                np.concatenate([stays.at, gone.at, came.at]),
                np.concatenate([stays.old, gone.old, none]),
                np.concatenate([stays.new, none, came.new]),
            )
        # In a commit a key may be deleted in one row and come again in another.
        return pairs.taken(np.lexsort((pairs.at, pairs.new >= 0, log[FIRST].to_numpy()[pairs.at])))

    def _differing(self, rows: pa.Table, pairs: _Pairs, names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Returns where there is a row before and one after a change, and a column of them differs."""
        both = pairs.both
        differs = np.zeros(len(both), bool)
        for name in names:
            column = whole(rows[name])
            old, new = (column.take(pa.array(at[both])) for at in (pairs.old, pairs.new))
            differs[both] |= ~_equal(old, new)
        return differs

    def _rows(self, log: pa.Table, rows: pa.Table, pairs: _Pairs) -> pa.Table:
        made = rows.take(pa.array(pairs.shown))
        if self.plan.form.style == "op":
            words = [WORDS[op] for op in self._ops(log, pairs)]
            return made.add_column(0, OP, pa.array(words, pa.string()))
        return self._with_keys(made.append_column(DELETED, pa.array(pairs.new < 0)), log, pairs)

    def _envelopes(self, log: pa.Table, rows: pa.Table, pairs: _Pairs) -> pa.Table:
        ops = self._ops(log, pairs)
        debezium = self.plan.form.envelope == "debezium"
        fields = list(self.plan.written.arrow().field("before" if debezium else "old").type)
        old, new = (_structs(rows, fields, at) for at in (pairs.old, pairs.new))
        if debezium:
            times = whole(log[TIME]).take(pa.array(pairs.at))
            columns = [old, new, pa.array(ops, pa.string()), times, self._origins(log, pairs, ops)]
            made = pa.table(columns, names=["before", "after", "op", "ts_ms", "source"])
        else:
            made = pa.table(
                [pa.array([WORDS[op] for op in ops], pa.string()), old, new], names=[OP, "old", "new"]
            )
        if self.plan.form.style == "op":
            return made
        shown = rows.take(pa.array(pairs.shown))
        for name in shown.column_names:
            if name in self.plan.written and name not in made.column_names:
                made = made.append_column(name, shown[name])
        made = self._with_keys(made.append_column(DELETED, pa.array(np.zeros(len(made), bool))), log, pairs)
        # A tombstone follows each delete, so that a compacted topic forgets the key.
        again = np.repeat(np.arange(len(made)), 1 + (pairs.new < 0))
        tombs = np.concatenate([[False], again[1:] == again[:-1]]) if len(again) else np.zeros(0, bool)
        made = made.take(pa.array(again))
        return made.set_column(made.column_names.index(DELETED), DELETED, pa.array(tombs))

    def _with_keys(self, made: pa.Table, log: pa.Table, pairs: _Pairs) -> pa.Table:
        """Adds the keys of messages, unless the query gives them."""
        if self.plan.form.style != "message" or KEY in made.column_names:
            return made
        keys = {}
        for name in self.plan.key:
            old, new = (whole(log[f"{which}{name}"]).take(pa.array(pairs.at)) for which in (OLD, NEW))
            keys[name] = pc.if_else(pa.array(pairs.new >= 0), new, old)
        kind = self.plan.written.arrow().field(KEY).type
        if pa.types.is_struct(kind):
            return made.append_column(KEY, pa.StructArray.from_arrays(list(keys.values()), fields=list(kind)))
        return made.append_column(KEY, key_texts(pa.table(keys)))

    def _ops(self, log: pa.Table, pairs: _Pairs) -> list[str]:
        ops = log[OP].to_numpy()[pairs.at]
        found = np.where(
            pairs.new < 0, GONE, np.where(pairs.old >= 0, CHANGED, np.where(ops == READ, READ, ADDED))
        )
        return [str(op) for op in found]

    def _origins(self, log: pa.Table, pairs: _Pairs, ops: list[str]) -> pa.Array:
        whence = {"connector": "millpond", "table": self.plan.table}
        numbers = log[SEQ].to_numpy()[pairs.at].tolist()
        return pa.array(
            [
                whence | {"position": str(number), "snapshot": "true" if op == READ else "false"}
                for number, op in zip(numbers, ops, strict=True)
            ],
            ORIGIN,
        )


def as_now(log: pa.Table, table: Snapshot, key: Sequence[str]) -> pa.Table:
    """Returns the changes with the rows of the table as they are now in place of those after the changes; of rows that
    are gone they are deletes.
    """
    log = log.combine_chunks()
    ops, names = log[OP].to_numpy(), [n[1:] for n in log.column_names if n.startswith(NEW)]
    had = np.isin(ops, (CHANGED, GONE))
    last = {n: pc.if_else(pa.array(ops == GONE), log[f"{OLD}{n}"], log[f"{NEW}{n}"]) for n in names}
    there = table.get(list(key), pa.table({n: last[n] for n in key}), nulls=True)
    places = {k: at for at, k in enumerate(key_list([there[n] for n in key]))}
    at = np.array([places.get(k, -1) for k in key_list([last[n] for n in key])], np.int64)
    made = {
        OP: pa.array(np.where(at < 0, GONE, np.where(had, CHANGED, ADDED)).astype(object), pa.string()),
        TIME: log[TIME],
        FIRST: log[FIRST],
    }
    for name in names:
        made[f"{OLD}{name}"] = pc.if_else(pa.array(had), log[f"{OLD}{name}"], last[name])
        made[f"{NEW}{name}"] = there[name].take(pa.array(at, mask=at < 0))
    return pa.table(made | {SEQ: log[SEQ]})


def _equal(a: pa.Array, b: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns where two columns are equal; NULL equals NULL."""
    try:
        same = pc.equal(a, b)
    except pa.ArrowNotImplementedError:  # nested values
        return np.fromiter((x == y for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)), bool, len(a))
    nulls = pc.and_(pc.is_null(a), pc.is_null(b))
    return np.asarray(pc.or_(pc.fill_null(same, False), nulls))


def _structs(rows: pa.Table, fields: list[pa.Field], at: Ints) -> pa.Array:
    """Returns rows as structs; NULL where there is none."""
    taken = rows.take(pa.array(at, mask=at < 0))
    columns = [whole(taken[f.name]) for f in fields]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(at < 0))
