"""Runs a statement over a stream: evaluates each batch and commits the result with the position.

A statement gets a batch and the position after it, and applies both in one commit. Each kind is a class; the engine
knows only ``apply``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Changes, Position, together
from millpond.connectors import retention
from millpond.connectors.source import SEQ
from millpond.errors import BadData, DataError, QueryFailed, without_passwords
from millpond.plan.plans import PipelinePlan
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.errortables import ERROR_COLUMNS, error_relation
from millpond.store.error_records import error_records, message_records, missed, of_messages, renewed, rows_of
from millpond.store.snapshot import StoreSnapshot
from millpond.store.store import Store
from millpond.store.undo import safely
from millpond.streaming.commit_lock import CommitLock
from millpond.streaming.emitted_rows import Emitted
from millpond.streaming.on_miss import (
    Matched,
    Misses,
    WaitingRows,
    waiting_schema,
    waiting_table,
)
from millpond.streaming.owned_tables import own
from millpond.streaming.poison import MOST, TooMany, find_poison, without_poison
from millpond.streaming.stages import Stages
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.engine.batch import Batch


T = TypeVar("T")
NO_MORE: Mapping[str, Changes] = {}
_TRIES = 3
"""How often a batch is run: tables may change after its bad rows were found."""


@dataclass(kw_only=True, eq=False, repr=False)
class RunningStatement(ABC):
    """Runs one statement of an app. If ``ephemeral`` its position is not stored: it starts over after a restart."""

    plan: PipelinePlan
    store: Store
    catalog: Catalog
    stages: Stages
    commit_lock: CommitLock
    ephemeral: bool

    in_order: ClassVar[bool] = False
    """Whether the effect of a row depends on the rows before it in the batch."""

    def __post_init__(self) -> None:
        self.errors = 0
        self._seen: Position | None = None
        self._trying = False
        self.misses = None if self.plan.miss is None else 0
        """Rows of this run without a match, if 'on.miss' is set."""
        self._misses: Misses | None = None
        self._more = NO_MORE
        if self.plan.target.kind == "table":
            self.store.fills(self.plan.name, self.plan.target.name)

    @property
    def may_need_spark(self) -> bool:
        """Returns whether Spark may evaluate some of its batches."""
        return self.stages.may_use_spark(self.plan.rule)

    @property
    def position(self) -> Position | None:
        """Returns the newest committed position."""
        return self._seen if self.ephemeral else self.store.position(self.plan.name)

    def declare(self) -> None:
        """Declares its error table."""
        if not self.plan.has_error_table:
            return
        relation = error_relation(self.plan.name)
        self.errors = own(self.store, relation, self.companion_storage())
        self.catalog.add(relation)

    def forget_earlier(self) -> None:
        """Forgets what is left of a dropped statement of that name, beside its position and the tables ``owned``."""
        return

    def continue_from(self, before: RunningStatement) -> None:
        """Takes the place of a statement that was stopped; what that one owns is still there."""
        self.misses = before.misses
        if self.ephemeral:
            self._seen = before.position

    def set_up(self) -> None:
        """Creates what the statement needs in addition to its target. Called before the first batch of a run."""
        miss = self.plan.miss
        if miss is None:
            return
        if miss.mode != "retry":
            self._misses = Misses(miss, self.stages.stage(miss.batch, self.plan.rule))
            return
        table, schema = waiting_table(self.plan.name), waiting_schema(self.plan.batch.stream.relation.schema)
        self.keep({table: schema})
        stage = self.stages.stage(miss.batch, self.plan.rule)
        self._misses = WaitingRows(miss, stage, table, self.store.snapshots(), self.stages.clock)

    @property
    def late(self) -> int | None:
        """Returns the number of late rows, which came when their window had closed, if there are such windows."""
        return None

    @property
    def waiting(self) -> int | None:
        """Returns the rows that wait for a match."""
        return self._misses.rows if isinstance(self._misses, WaitingRows) else None

    @property
    def divides(self) -> bool:
        """Returns whether a batch with many bad rows is applied in halves."""
        return True

    def begin(self) -> None:
        """Makes the commit that comes before all batches, if there is one. Called when it has started."""
        return

    def make_visible(self) -> int:
        """Makes visible what waits in its target. Called while no batch is applied, before it is dropped."""
        return 0

    def close(self) -> None:
        """Releases resources outside of the app."""
        return

    @property
    def owned(self) -> tuple[str, ...]:
        """Returns the tables that ``declare`` and ``set_up`` create."""
        waits = self.plan.miss is not None and self.plan.miss.mode == "retry"
        waiting = (waiting_table(self.plan.name),) if waits else ()
        return (*waiting, self.plan.errors) if self.plan.has_error_table else waiting

    def drop(self) -> None:
        """Removes what it owns."""
        if self.plan.has_error_table:
            self.catalog.remove(self.plan.errors)
        for table in self.owned:
            safely(partial(self.store.drop, table))

    def companion_storage(self) -> tuple[str, Mapping[str, Any]] | None:
        """Returns where tables next to the target are stored, as extension and options; None if they are not."""
        target = self.plan.target
        if self.ephemeral:
            return None
        return self.store.companion_of(target.name) if target.kind == "table" else ("memory", {})

    def keep(self, tables: Mapping[str, Schema]) -> None:
        """Creates tables next to the target, stored like it."""
        for name, schema in tables.items():
            own(self.store, Relation(name, "table", schema), self.companion_storage(), null_keys=True)

    def apply(self, batch: Batch, position: Position | None, more: Mapping[str, Changes] = NO_MORE) -> int:
        """Commits the results of the batch, the position and ``more``, all or nothing; returns the number of results.

        If it fails on data, the rows that it fails on become error records in the same commit.
        """
        gap = retention.gap(batch.source, batch.start, batch.end) if batch.lost else range(0)
        if errors := self._missed(gap):
            more = together(more, errors)
        batch = self._fitted(batch)
        count = self._process(batch, None if self.ephemeral else position, more)
        self._seen, self.errors = position, self.errors + len(errors)
        return count

    def _missed(self, gap: range) -> Mapping[str, Changes]:
        """Returns an error record of rows that were removed before they were read."""
        if not gap or self.plan.on_error == "fail":
            return NO_MORE
        return self._errors(self._with_messages(self._records(None, None), missed(gap)))

    def _fitted(self, batch: Batch) -> Batch:
        """Returns the batch with the columns that the statement knows."""
        return batch.fitting(self.plan.batch.stream.relation.schema)

    def retry(self) -> int:
        """Retries rows that wait for a match, if that can make a difference; returns the number of results. Called
        while no batch is applied.
        """
        if not isinstance(self._misses, WaitingRows) or not self._misses.due(self.store.snapshots()):
            return 0
        schema = self.plan.batch.stream.relation.schema.arrow().append(pa.field(SEQ, pa.int64()))
        return self._process(self.stages.part(schema.empty_table()), None)

    def _process(self, batch: Batch, position: Position | None, more: Mapping[str, Changes] = NO_MORE) -> int:
        snapshots = self.store.snapshots()
        try:
            whole, matched = batch, self._match(batch, snapshots)
        except BadData:
            if self.plan.on_error == "fail" or not batch.sift():
                raise
            whole, matched = batch, self._match(batch, snapshots)
        batch, records = matched.batch, self._records(matched.rejected, matched.why)
        tries = 0

        def other_changes() -> Mapping[str, Changes]:
            """Returns what is committed with the results. Messages that executors could not decode are known then."""
            return together(
                more, {**matched.changes, **self._errors(self._with_messages(records, whole.rejected))}
            )

        while True:
            try:
                count = self._run(batch, snapshots, position, other_changes)
            except DataError as error:
                tries += 1
                if self.plan.on_error == "fail" or tries >= _TRIES:
                    raise
                if whole.sift():
                    return self._process(whole, position, more)
                snapshots = self.store.snapshots()
                batch, failed = self._separate_errors(whole, batch, snapshots, error)
                records = pa.concat_tables([records, failed])
            else:
                matched.after()
                self.errors += self._with_messages(records, whole.rejected).num_rows
                if self.misses is not None:
                    self.misses += matched.missed
                return count

    def pass_over(self, position: Position | None, more: Mapping[str, Changes]) -> int:
        """Commits the position and ``more``, for a batch that does not affect this statement."""
        kept = None if self.ephemeral else position
        with self.commit_lock.locked():
            self.write(lambda _: (more, None), kept, into=tuple(more))
        self._seen = position or self._seen
        return 0

    def _match(self, batch: Batch, snapshots: StoreSnapshot) -> Matched:
        """Returns the batch after the lookup in the tables, if 'on.miss' is set."""
        return Matched(batch) if self._misses is None else self._misses.match(batch, snapshots)

    def _errors(self, records: pa.Table) -> Mapping[str, Changes]:
        return {self.plan.errors: Changes(records)} if records.num_rows else NO_MORE

    def _run(
        self,
        batch: Batch,
        snapshots: StoreSnapshot,
        position: Position | None,
        more: Callable[[], Mapping[str, Changes]],
    ) -> int:
        """Applies a batch and the position, in one commit with ``more``, which is asked for after the evaluation."""
        rows = self.evaluate(batch, snapshots)
        return self._committed(more(), lambda: self.commit(rows, position))

    def _committed(self, more: Mapping[str, Changes], commit: Callable[[], int]) -> int:
        """Calls ``commit`` in this statement's turn: what it writes is in one commit with ``more``."""
        with self.commit_lock.locked():
            self._more = more
            try:
                return commit()
            finally:
                self._more = NO_MORE

    def _with_messages(self, records: pa.Table, rejected: pa.Table | None) -> pa.Table:
        """Returns error records with those of messages or records that could not be read."""
        if rejected is None:
            return records
        if self.plan.on_error == "fail":
            raise BadData(f"a record cannot be decoded: {rejected['reason'][0].as_py()}")
        stream = without_passwords(self.plan.batch.stream.relation.name)
        schema, now = self._error_schema, self.stages.clock.now()
        return pa.concat_tables([records, message_records(self.plan.name, stream, rejected, schema, now)])

    def _records(self, rejected: pa.Table | None, why: pa.ChunkedArray | None) -> pa.Table:
        """Returns error records of rows of the stream."""
        if rejected is None or why is None or not rejected.num_rows:
            return self._error_schema.arrow().empty_table()
        stream = without_passwords(self.plan.batch.stream.relation.name)
        return error_records(
            self.plan.name, stream, rejected, why, self._error_schema, self.stages.clock.now()
        )

    @property
    def _error_schema(self) -> Schema:
        relation = self.catalog.find(self.plan.errors)
        return relation.schema if relation is not None else ERROR_COLUMNS

    def _separate_errors(
        self, whole: Batch, batch: Batch, snapshots: StoreSnapshot, error: DataError
    ) -> tuple[Batch, pa.Table]:
        """Returns the rows of a batch that can be processed, and error records of the others; ``batch`` is what is left
        of the ``whole``.
        """
        from millpond.engine.row_transfer import Divide

        rows = batch.read()

        def attempt(some: pa.Table) -> DataError | None:
            return self._attempt(batch.part(some), snapshots)

        if attempt(rows.slice(0, 0)) is not None:
            raise error
        try:
            bad = find_poison(
                rows, attempt, in_order=self.in_order, most=MOST if self.divides and whole.halves() else None
            )
        except TooMany:
            raise Divide from None
        good, rejected, why = without_poison(rows, bad)
        return batch.part(good), self._records(rejected, why)

    def replay(self) -> int:
        """Applies the rows of its error records again: in one commit they take effect and their records are deleted, or
        they stay with a new reason. Returns how many took effect. Called while no batch is applied.
        """
        table = self.store.snapshots().snapshot(self.plan.errors).scan(rows=True)
        if "query" in table.column_names:
            table = table.filter(pc.equal(table["query"], self.plan.name))
        if not {"seq", "row"} <= set(table.column_names):
            raise QueryFailed(
                f'table "{self.plan.errors}" has no columns "seq" and "row": nothing can be replayed from it'
            )
        table = table.filter(pc.invert(of_messages(table["row"])))
        if not table.num_rows:
            return 0
        rows = rows_of(table, self.plan.batch.stream.relation.schema, f'table "{self.plan.errors}"')
        snapshots = self.store.snapshots()
        matched = self._match(self.stages.part(rows), snapshots)
        batch, records = matched.batch, self._records(matched.rejected, matched.why)
        for left in reversed(range(_TRIES)):
            if (error := self._attempt(batch, snapshots)) is not None:
                batch, failed = self._separate_errors(batch, batch, snapshots, error)
                records = pa.concat_tables([records, failed])
            changes = {**matched.changes, self.plan.errors: renewed(table, records)}
            try:
                self._run(batch, snapshots, None, partial(dict, changes))
                break
            except DataError:  # a sink knows only now what it does not take
                if not left:
                    raise
        matched.after()
        self.errors -= table.num_rows - records.num_rows
        return int(table.num_rows - records.num_rows)

    def _attempt(self, batch: Batch, snapshots: StoreSnapshot) -> DataError | None:
        """Returns what would be wrong with a batch; nothing of it is committed."""
        self._trying = True
        try:
            self.commit(self.evaluate(batch, snapshots), None)
        except DataError as error:
            return error
        finally:
            self._trying = False
        return None

    @abstractmethod
    def evaluate(self, batch: Batch, snapshots: StoreSnapshot) -> pa.Table:
        """Returns the results of the batch with the tables of a snapshot, before anything is committed."""

    @abstractmethod
    def commit(self, rows: pa.Table, position: Position | None) -> int:
        """Commits the results and the position, in one ``write``; returns the number of results."""

    def write(
        self,
        find: Callable[[StoreSnapshot], tuple[Mapping[str, Changes], T]],
        position: Position | None,
        *,
        sent: Callable[[T], Mapping[str, pa.Table]] | None = None,
        into: Iterable[str] = (),
    ) -> T:
        """Writes like Store.write, with the error records of the batch. All changes of a statement go through here."""
        store, more = self.store, self._more
        if self._trying:
            changes, answer = find(store.snapshots())
            store.check(changes)
            return answer

        def with_more(snapshots: StoreSnapshot) -> tuple[Mapping[str, Changes], T]:
            changes, answer = find(snapshots)
            return {**changes, **more}, answer

        return store.write(with_more, position, sent=sent, into=(*into, *more))

    def emit(self, emitted: Emitted, rows: pa.Table) -> None:
        """Passes rows to the readers."""
        if not self._trying:
            emitted.add(self.plan.name, rows, ephemeral=self.ephemeral)
