"""Running statements: what becomes of a batch of their stream.

A statement gets a batch and the position after it, and makes both count in one commit. Each kind is a class; the
engine knows only ``apply``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.app.errortable import error_records, rows_of
from millpond.app.poison import MOST, TooMany, find_poison
from millpond.app.store import Moment
from millpond.changes import ROW, Changes, Position
from millpond.errors import DataError, PipelineFailed, QueryFailed
from millpond.plan.plans import BatchPlan, PipelinePlan
from millpond.sources.base import SEQ
from millpond.sql.catalog import Relation
from millpond.sql.errortables import ERROR_COLUMNS, error_relation
from millpond.tables.cache import behind
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.engine.batch import Batch
    from millpond.engine.stage import Stage


T = TypeVar("T")
_NO_MORE: Mapping[str, Changes] = {}
_TRIES = 3
"""Times that a batch is run: tables may change after its poison was found."""


class RunningStatement(ABC):
    """One running statement of an app. If ``ephemeral`` its position is not kept: it begins anew after a restart."""

    in_order = False
    """Whether what a row does depends on the rows before it in the batch."""

    def __init__(self, app: App, plan: PipelinePlan, *, ephemeral: bool):
        self.app = app
        self.plan = plan
        self.ephemeral = ephemeral
        self.errors = 0
        self._seen: Position | None = None
        self._trying = False
        self._misses: Stage | None = None
        self._more = _NO_MORE
        if plan.target.kind == "table":
            app._store.fills(plan.name, plan.target.name)

    @property
    def position(self) -> Position | None:
        """The newest position that counts."""
        return self._seen if self.ephemeral else self.app._store.position(self.plan.name)

    def declare(self) -> None:
        """Makes the table of its errors known."""
        if not self.plan.has_error_table:
            return
        store, relation = self.app._store, error_relation(self.plan.name)
        if self.ephemeral:
            store.create_hidden(relation.name, relation.schema)
        else:
            extension, options = self.beside()
            self.errors = len(store.create(relation, extension, options))
        self.app._catalog.add(relation)

    def set_up(self) -> None:
        """Makes what the statement needs beside its target. Called before the first batch of a run."""
        return

    def drop(self) -> None:
        """Removes what ``declare`` and ``set_up`` made."""
        if self.plan.has_error_table:
            self.app._catalog.remove(self.plan.errors)
            self.app._store.drop(self.plan.errors)

    def beside(self) -> tuple[str, Mapping[str, Any]]:
        """Where a table beside the target is kept, as extension and options: in its database, else in the
        journal."""
        target, store = self.plan.target, self.app._store
        backend = store.table(target.name) if target.kind == "table" else None
        if backend is None or backend.database is None:
            return "memory", {"durability": store.durability(target.name)}
        options = dict(self.app._table_options[target.name.lower()])
        options.pop("table", None)
        return behind(options) if options.get("cache.over") else (str(options["extension"]), options)

    def keep(self, tables: Mapping[str, Schema]) -> None:
        """Makes tables beside the target, which are kept as it is."""
        store = self.app._store
        for name, schema in tables.items():
            if self.ephemeral:
                store.create_hidden(name, schema, null_keys=True)
            else:
                extension, options = self.beside()
                store.create(Relation(name, "table", schema), extension, {**options, "null_keys": True})

    def apply(self, batch: Batch, position: Position | None, more: Mapping[str, Changes] = _NO_MORE) -> int:
        """Makes what the batch gives, the position and ``more`` count, all or nothing; answers how many rows it gave.

        If it fails on data, the rows that it fails on become error records in the same commit.
        """
        kept = None if self.ephemeral else position
        batch, records = self._put_missed_aside(batch)
        tries = 0
        while True:
            try:
                count = self._run(batch, kept, together(more, self._errors(records)))
            except DataError as error:
                tries += 1
                if self.plan.on_error == "fail" or tries >= _TRIES:
                    raise
                batch, failed = self._put_aside(batch, error)
                records = pa.concat_tables([records, failed])
            else:
                self._seen = position
                self.errors += records.num_rows
                return count

    def pass_over(self, position: Position | None, more: Mapping[str, Changes]) -> int:
        """Makes the position and ``more`` count, for a batch that gives this statement nothing."""
        kept = None if self.ephemeral else position
        with self.app._runner.delivering():
            self.write(lambda _: (more, None), kept, into=tuple(more))
        return 0

    def _errors(self, records: pa.Table) -> Mapping[str, Changes]:
        return {self.plan.errors: Changes(records)} if records.num_rows else _NO_MORE

    def _run(self, batch: Batch, position: Position | None, more: Mapping[str, Changes] = _NO_MORE) -> int:
        """Makes a batch and the position count, in one commit with ``more``."""
        rows = self.evaluate(batch)
        with self.app._runner.delivering():
            self._more = more
            try:
                return self.commit(rows, position)
            finally:
                self._more = _NO_MORE

    def _put_missed_aside(self, batch: Batch) -> tuple[Batch, pa.Table]:
        """The rows of a batch that find their matches, and records of the others, where 'on.miss' asks for that."""
        miss = self.plan.miss
        if miss is None:
            return batch, self._error_schema.arrow().empty_table()
        if self._misses is None:
            self._misses = self.stage(miss.batch)
        found = self._misses.run(batch, self.app._store.moment())
        if not found.num_rows:
            return batch, self._error_schema.arrow().empty_table()
        if miss.fail:
            raise PipelineFailed(
                f"{pc.count_distinct(found['missed'])} rows of a batch find no match"
                f" in {' or '.join(miss.tables)}",
                hint="put the rows into the table and START QUERY, or choose another 'on.miss'",
            )
        why: Any = None
        for i, table in reversed(list(enumerate(miss.tables))):
            why = pc.if_else(found[f"m{i}"], f'there is no match in table "{table}"', why)
        return self._divided(batch, batch.read(), pa.table({"seq": found["missed"], "reason": why}))

    def _divided(self, batch: Batch, rows: pa.Table, bad: pa.Table) -> tuple[Batch, pa.Table]:
        """The rows whose ``_seq`` is not one of ``bad``, and records of the others with the reason there."""
        from millpond.engine.batch import Part

        bad = bad.group_by("seq").aggregate([("reason", "min")])
        place = pc.index_in(rows[SEQ], bad["seq"])
        aside = rows.filter(pc.is_valid(place))
        why = bad["reason_min"].take(place.filter(pc.is_valid(place)))
        stream = self.plan.batch.stream.relation.name
        records = error_records(self.plan.name, stream, aside, why, self._error_schema)
        return Part(rows.filter(pc.is_null(place)), batch.spark), records

    @property
    def _error_schema(self) -> Schema:
        relation = self.app._catalog.find(self.plan.errors)
        return relation.schema if relation is not None else ERROR_COLUMNS

    def _put_aside(self, batch: Batch, error: DataError) -> tuple[Batch, pa.Table]:
        """The rows of a batch that can be processed, and records of the others."""
        from millpond.engine.batch import Part

        rows = batch.read()
        if self._attempt(Part(rows.slice(0, 0), batch.spark)) is not None:
            raise error
        try:
            bad = find_poison(
                rows, lambda some: self._attempt(Part(some, batch.spark)), in_order=self.in_order
            )
        except TooMany:
            raise QueryFailed(
                f"more than {MOST:,} rows of a batch cannot be processed: {error.message}", hint=error.hint
            ) from error
        seqs = rows[SEQ].take(pa.array([place for place, _ in bad], pa.int64()))
        reasons = [reason.message for _, reason in bad]
        return self._divided(batch, rows, pa.table({"seq": seqs, "reason": pa.array(reasons, pa.string())}))

    def replay(self) -> int:
        """Applies the rows of its error records again: in one commit they take effect and their records go, or
        they stay with a new reason. Answers how many took effect. Called while no batch is applied."""
        from millpond.engine.batch import Part

        table = self.app._store.moment().snapshot(self.plan.errors).scan(rows=True)
        if "query" in table.column_names:
            table = table.filter(pc.equal(table["query"], self.plan.name))
        if not {"seq", "row"} <= set(table.column_names):
            raise QueryFailed(
                f'table "{self.plan.errors}" has no columns "seq" and "row": nothing can be replayed from it'
            )
        if not table.num_rows:
            return 0
        rows = rows_of(table, self.plan.batch.stream.relation.schema, f'table "{self.plan.errors}"')
        whole = Part(rows, lambda: self.app._spark().newSession())
        batch, records = self._put_missed_aside(whole)
        error = self._attempt(batch)
        if error is not None:
            batch, failed = self._put_aside(batch, error)
            records = pa.concat_tables([records, failed])
        again = records.append_column(ROW, pa.nulls(records.num_rows, pa.int64()))
        is_gone = pa.array([True] * table.num_rows + [False] * again.num_rows, pa.bool_())
        changes = Changes(pa.concat_tables([table, again.select(table.column_names)]), is_gone)
        self._run(batch, None, {self.plan.errors: changes})
        self.errors -= table.num_rows - again.num_rows
        return int(table.num_rows - again.num_rows)

    def _attempt(self, batch: Batch) -> DataError | None:
        """What would be wrong with a batch; nothing of it counts."""
        self._trying = True
        try:
            self.commit(self.evaluate(batch), None)
        except DataError as error:
            return error
        finally:
            self._trying = False
        return None

    @abstractmethod
    def evaluate(self, batch: Batch) -> pa.Table:
        """What the batch gives, before anything counts."""

    @abstractmethod
    def commit(self, rows: pa.Table, position: Position | None) -> int:
        """Makes it and the position count, in one ``write``; answers how many rows it gave."""

    def write(
        self,
        find: Callable[[Moment], tuple[Mapping[str, Changes], T]],
        position: Position | None,
        *,
        sent: Callable[[T], Mapping[str, pa.Table]] | None = None,
        into: Iterable[str] = (),
    ) -> T:
        """As Store.write, with the error records of the batch. All that a statement changes goes through here."""
        store, more = self.app._store, self._more
        if self._trying:
            changes, answer = find(store.moment())
            store.check(changes)
            return answer

        def with_more(moment: Moment) -> tuple[Mapping[str, Changes], T]:
            changes, answer = find(moment)
            return {**changes, **more}, answer

        return store.write(with_more, position, sent=sent, into=(*into, *more))

    def stage(self, plan: BatchPlan) -> Stage:
        """What evaluates a plan over batches; it is made once and kept."""
        from millpond.engine.stage import Stage

        return Stage(plan, self.app._evaluator.in_process(plan.query))

    def emit(self, rows: pa.Table) -> None:
        """Hands rows to whoever reads along."""
        if self._trying:
            return
        if self.ephemeral or self.app._on_emit is None:
            self.app._emitted[self.plan.name].add(rows)
        elif rows.num_rows:
            self.app._on_emit(self.plan.name, rows)


def together(changes: Mapping[str, Changes], others: Mapping[str, Changes]) -> dict[str, Changes]:
    """Both; those of one table one after the other."""
    made = {**others, **changes}
    for name in changes.keys() & others.keys():
        parts = [changes[name], others[name]]
        numbered = any(ROW in p.rows.column_names for p in parts)
        rows = [_numbered(p.rows) if numbered else p.rows for p in parts]
        deleted = [p.deleted or pa.array(np.zeros(len(p), bool)) for p in parts]
        made[name] = Changes(pa.concat_tables(rows), pa.concat_arrays(deleted))
    return made


def _numbered(rows: pa.Table) -> pa.Table:
    if ROW in rows.column_names:
        return rows
    return rows.append_column(ROW, pa.nulls(rows.num_rows, pa.int64()))


class Rows(RunningStatement):
    """A query whose rows each count by themselves: into a table, a stream, or to whoever asked."""

    def set_up(self) -> None:
        self._stage = self.stage(self.plan.batch)

    def evaluate(self, batch: Batch) -> pa.Table:
        rows = self._stage.run(batch, self.app._store.moment())
        arrow = self.plan.batch.output.arrow()
        return rows.rename_columns(arrow.names).cast(arrow)

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        target = self.plan.target
        relation = self.app._catalog.find(target.name)
        strict = relation is not None and relation.strict and self.plan.name != f"table:{target.name}"

        def find(moment: Moment) -> tuple[dict[str, Changes], None]:
            if target.kind == "emit":
                # Shown before they count, so that a kill loses none.
                self.emit(rows)
            if target.kind != "table":
                return {}, None
            if strict:
                moment.snapshot(target.name).refuse_taken(rows, f'table "{target.name}"')
            return {target.name: Changes(rows)}, None

        self.write(
            find,
            position,
            sent=(lambda _: {target.name: rows}) if target.kind == "stream" else None,
            into=(target.name,) if target.kind == "table" else (),
        )
        return int(rows.num_rows)
