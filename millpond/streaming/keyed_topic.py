"""Maintains a keyed topic as a table: the last message of a key is its row, and a tombstone deletes it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Changes, Position
from millpond.connectors.source import DELETED, MESSAGE, SEQ
from millpond.errors import BadData, DataError
from millpond.formats.keycolumns import NO_KEY, key_columns
from millpond.plan.plans import KeyedPlan, KeyPlan
from millpond.store.snapshot import StoreSnapshot
from millpond.streaming.on_miss import Matched, WaitingRows
from millpond.streaming.poison import find_poison, without_poison
from millpond.streaming.row_statement import RowStatement
from millpond.types import Schema, whole

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.stage import Stage

_KEY = MESSAGE[0]


class Divided(NamedTuple):
    """Contains a batch with tombstones: ``live`` rows that none of them deletes, ``ended`` messages, and the ``keys``
    of the rows that these delete.
    """

    live: pa.Table
    ended: pa.Table
    keys: pa.Table


class Endings:
    """Finds the rows of a keyed table that the messages of a batch delete. ``answer`` evaluates the plan's query over
    rows of the stream, and returns a row for each, in their order.
    """

    def __init__(self, plan: KeyPlan, stream: Schema, answer: Callable[[pa.Table], pa.Table]):
        self._plan = plan
        self._stream = stream
        self._answer = answer

    def divide(self, rows: pa.Table) -> Divided | None:
        """Divides a batch; returns None if nothing in it deletes a row. Raises BadData if a message does not determine
        which.
        """
        ends = pc.fill_null(rows[DELETED], False)
        if not pc.any(ends).as_py():
            return None
        ended, live = rows.filter(ends), rows.filter(pc.invert(ends))
        ended, keys = self.ends(ended)
        return Divided(live.filter(pa.array(~self.over(live, keys, ended))), ended, keys)

    def ends(self, ended: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Returns messages that delete rows, complete, and the keys of these rows. Raises BadData if a message does not
        determine which.
        """
        if self._plan.batch is None:
            raise BadData(
                "a row of the stream was deleted, and which rows of the table it ends is not known: the columns of"
                " its key are not made of columns of the stream"
            )
        ended = self._complete(ended)
        keys = self.keys(ended)
        if any(c.null_count for c in keys.columns):
            raise BadData(NO_KEY)
        return ended, keys

    def keys(self, rows: pa.Table) -> pa.Table:
        """Returns the key for each row."""
        numbers = pa.array(np.arange(rows.num_rows, dtype=np.int64))
        numbered = rows.set_column(rows.schema.get_field_index(SEQ), SEQ, numbers)
        assert self._plan.batch is not None
        arrow = self._plan.batch.output.arrow()
        return self._answer(numbered).rename_columns(arrow.names).cast(arrow)

    def over(self, rows: pa.Table, keys: pa.Table, ended: pa.Table) -> np.ndarray:
        """Returns for each of the rows whether a later message of its key deletes it."""
        return later(self.keys(rows), rows[SEQ], keys, ended[SEQ])

    def elsewhere(self, stage: Stage, batch: Batch, tables: StoreSnapshot, output: pa.Schema) -> Changes:
        """Returns the changes that the messages of a batch make, which executors evaluate: only results, and messages
        that delete rows, reach this process. Results have the columns ``output``.
        """
        rows = stage.run_on_spark(batch.without_deleted(), tables, numbered=True)
        seqs = rows[SEQ]
        rows = rows.drop_columns([SEQ]).rename_columns(output.names).cast(output)
        ended = batch.deleted()
        if ended is None:
            return Changes(rows)
        stream = self._stream.arrow().append(pa.field(SEQ, pa.int64()))
        ended, keys = self.ends(ended.select(stream.names).cast(stream))
        own = [next(f for f in output if f.name.lower() == name.lower()) for name in keys.column_names]
        over = later(rows.select([f.name for f in own]), seqs, keys.cast(pa.schema(own)), ended[SEQ])
        return with_endings(rows.filter(pa.array(~over)), keys)

    def _complete(self, ended: pa.Table) -> pa.Table:
        """Returns the messages with values from their own keys for columns without a value."""
        columns = [c for c in self._stream if c.name in self._plan.columns]
        if not columns or _KEY not in self._stream:
            return ended
        empty = np.ones(ended.num_rows, dtype=bool)
        for column in columns:
            empty &= np.asarray(ended[column.name].is_null())
        places = np.flatnonzero(empty)
        if not len(places):
            return ended
        found = key_columns(whole(ended[_KEY]).take(pa.array(places)), Schema(tuple(columns)))
        for column, values in zip(columns, found.columns, strict=True):
            filled = pc.replace_with_mask(whole(ended[column.name]), pa.array(empty), values)
            ended = ended.set_column(ended.schema.get_field_index(column.name), column.name, filled)
        return ended


@dataclass(kw_only=True, eq=False, repr=False)
class Keyed(RowStatement):
    """Writes the rows of a query to a keyed table, over a stream whose tombstones delete rows.

    A tombstone bypasses the query: its key identifies the row. The rows of that key that come before it in the batch,
    or wait for a match, need not be evaluated.
    """

    plan: KeyedPlan

    def set_up(self) -> None:
        super().set_up()
        plan = self.plan.keys
        stage = self.stages.stage(plan.batch, self.plan.rule) if plan.batch is not None else None

        def answer(rows: pa.Table) -> pa.Table:
            assert stage is not None
            return stage.run(self.stages.part(rows), self.store.snapshots())

        self._endings = Endings(plan, self.plan.batch.stream.relation.schema, answer)

    def _match(self, batch: Batch, snapshots: StoreSnapshot) -> Matched:
        if self._misses is None:
            return super()._match(batch, snapshots)
        rows = batch.read()
        if self.plan.on_error != "fail" and self._wrong(rows) is not None:
            good, rejected, why = without_poison(rows, find_poison(rows, self._wrong, in_order=False))
            return self._match_live(batch.part(good), snapshots).with_rejected(rejected, why)
        return self._match_live(batch, snapshots)

    def _wrong(self, rows: pa.Table) -> DataError | None:
        """Returns why the rows that messages delete cannot be determined."""
        try:
            self._endings.divide(rows)
        except DataError as error:
            return error
        return None

    def _match_live(self, batch: Batch, snapshots: StoreSnapshot) -> Matched:
        """Matches only rows that are not deleted; only they wait for a match."""
        found = self._endings.divide(batch.read())
        if found is None:
            return super()._match(batch, snapshots)
        live = batch.part(found.live)
        if isinstance(self._misses, WaitingRows):
            waiting = self._misses.waiting(snapshots)
            over = waiting[SEQ].filter(pa.array(self._endings.over(waiting, found.keys, found.ended)))
            matched = self._misses.match(live, snapshots, whole(over))
        else:
            matched = super()._match(live, snapshots)
        rows = matched.batch.read()
        return replace(matched, batch=batch.part(pa.concat_tables([found.ended.cast(rows.schema), rows])))

    def evaluate(self, batch: Batch, snapshots: StoreSnapshot) -> pa.Table:
        if batch.is_decoded_elsewhere and self._stage.is_for_spark(batch):
            with suppress(DataError):  # which rows cannot be processed is found out here
                changes = self._endings.elsewhere(
                    self._stage, batch, snapshots, self.plan.batch.output.arrow()
                )
                return _marked(changes)
        found = self._endings.divide(batch.read())
        if found is None:
            return _marked(Changes(super().evaluate(batch, snapshots)))
        return _marked(with_endings(super().evaluate(self.stages.part(found.live), snapshots), found.keys))

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        name = self.plan.target.name
        changes = Changes(rows.drop_columns([DELETED]), rows[DELETED].combine_chunks())

        def find(snapshots: StoreSnapshot) -> tuple[dict[str, Changes], None]:
            if self.strict:
                refuse_taken(snapshots, name, changes)
            return {name: changes}, None

        self.write(find, position, into=(name,))
        return int(rows.num_rows)


def _marked(changes: Changes) -> pa.Table:
    """Returns rows with a column that tells which are deleted."""
    deleted = changes.deleted
    if deleted is None:
        deleted = pa.array(np.zeros(changes.rows.num_rows, dtype=bool))
    return changes.rows.append_column(DELETED, deleted)


def later(own: pa.Table, places: pa.ChunkedArray, keys: pa.Table, ends: pa.ChunkedArray) -> np.ndarray:
    """Returns for each of the rows with these keys and sequence numbers whether a message deletes it that comes later;
    ``keys`` and ``ends`` are those of the messages.
    """
    names = keys.column_names
    last = keys.append_column("$end", ends).group_by(names).aggregate([("$end", "max")])
    own = own.rename_columns(names).append_column("$at", places)
    own = own.append_column("$place", pa.array(np.arange(own.num_rows)))
    matched = own.join(last, names, join_type="inner")
    over = np.zeros(own.num_rows, dtype=bool)
    over[matched.filter(pc.less(matched["$at"], matched["$end_max"]))["$place"].to_numpy()] = True
    return over


def refuse_taken(snapshots: StoreSnapshot, table: str, changes: Changes) -> None:
    """Raises DuplicateKey if a new row has an existing key, unless the same changes delete that row."""
    snapshot = snapshots.snapshot(table)
    names = list(snapshot.schema.key)
    put = changes.put
    if changes.deleted is not None:
        ended = changes.rows.filter(changes.deleted).select(names)
        numbered = put.select(names).append_column("$place", pa.array(np.arange(put.num_rows)))
        fresh = numbered.join(ended, names, join_type="left anti")["$place"]
        put = put.take(fresh)
    snapshot.refuse_taken(put, f'table "{table}"')


def with_endings(rows: pa.Table, keys: pa.Table) -> Changes:
    """Returns the rows, and before them the deletion of those that the table has under the keys."""
    by_name = {n.lower(): c for n, c in zip(keys.column_names, keys.columns, strict=True)}
    arrays = [
        by_name[f.name.lower()].cast(f.type) if f.name.lower() in by_name else pa.nulls(keys.num_rows, f.type)
        for f in rows.schema
    ]
    deleted = np.zeros(keys.num_rows + rows.num_rows, dtype=bool)
    deleted[: keys.num_rows] = True
    return Changes(pa.concat_tables([pa.table(arrays, schema=rows.schema), rows]), pa.array(deleted))
