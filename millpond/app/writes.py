"""Runs INSERT, UPDATE, DELETE, MERGE, UPSERT, TRUNCATE and blocks of them, once or for as long as the app."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from uuid import uuid4

import pyarrow as pa

from millpond import faults
from millpond.app.finite_queries import Answers
from millpond.changes import Changes, Position
from millpond.connectors.sink import find_sink, settled
from millpond.dml.mutate import finding, inserting
from millpond.errors import NotSupported
from millpond.loading.inputs import Inputs
from millpond.loading.open_sources import Sources
from millpond.plan.connectors import Connectors
from millpond.plan.pipeline import plan_block, plan_pipeline
from millpond.query.evaluate import Evaluator
from millpond.query.result import Result
from millpond.sql.catalog import Relation
from millpond.sql.checked import CheckedBlock, CheckedFold, CheckedInsert, CheckedMutation, CheckedValues
from millpond.statements.handlers import NOTHING, Handlers, WithTypes, handle
from millpond.statements.launch import Launcher
from millpond.statements.text_run import TextRun
from millpond.store.snapshot import StoreSnapshot
from millpond.store.store import Store
from millpond.store.undo import Undo, safely
from millpond.streaming.emitted_rows import Emitted
from millpond.streaming.sink_statement import deliver, identity
from millpond.streaming.stages import Spark


@dataclass(frozen=True, eq=False, repr=False)
class Writes:
    """Runs statements that change rows."""

    text: TextRun
    launcher: Launcher
    answers: Answers
    store: Store
    evaluator: Evaluator
    inputs: Inputs
    sources: Sources
    connectors: Connectors
    emitted: Emitted
    spark: Spark
    with_types: WithTypes

    @property
    def handlers(self) -> Handlers:
        return dict(
            (
                handle(CheckedInsert, self.insert),
                handle(CheckedValues, self.insert_values),
                handle(CheckedMutation, self.mutate),
                handle(CheckedFold, self.fold),
                handle(CheckedBlock, self.block),
            )
        )

    def insert(self, checked: CheckedInsert, undo: Undo) -> Result:
        target = checked.target
        if target.kind == "sink" and not checked.running:
            return self._write_outside(checked, target)
        if checked.running:
            return self._run_on(checked, undo)
        if target.kind == "table" and target.name.lower() in {name.lower() for name in checked.reads}:
            # Rows that are read from the table itself must be unchanged when it is written.
            find = partial(self._find_rows, checked, target)
            return Result(NOTHING, count=self.text.write(checked.statement, target.name, find))
        return self._insert_rows(checked, self.answers.rows_to_insert(checked))

    def insert_values(self, checked: CheckedValues, undo: Undo) -> Result:
        return self._insert_rows(checked, self.answers.values(checked))

    def _insert_rows(self, checked: CheckedInsert | CheckedValues, rows: pa.Table) -> Result:
        target = checked.target
        faults.reach("rows found")
        if target.kind == "stream":
            self.store.commit(
                sent={target.name: rows}, done=self.text.done_by(checked.statement, target.name)
            )
        else:
            self.text.write(checked.statement, target.name, inserting(target, rows))
        return Result(NOTHING, count=rows.num_rows)

    def _run_on(self, checked: CheckedInsert | CheckedFold, undo: Undo) -> Result:
        """Runs a statement for as long as the app."""
        name = self.launcher.name(checked, undo)
        plan = plan_pipeline(checked, name, self.launcher.target(checked, name))
        return self.launcher.run_on(plan, checked, undo)

    def _find_rows(
        self, checked: CheckedInsert, target: Relation, snapshots: StoreSnapshot
    ) -> tuple[dict[str, Changes], int]:
        rows = self.answers.rows_to_insert(checked, snapshots)
        faults.reach("rows found")
        return inserting(target, rows)(snapshots)

    def _write_outside(self, checked: CheckedInsert, target: Relation) -> Result:
        """Writes rows of tables to a sink, once."""
        if self.text.transaction is not None:
            raise NotSupported(
                "INSERT INTO a URI in a transaction: what left the app cannot be taken back",
                hint="write the rows after COMMIT",
                place=checked.statement.place,
            )
        checked = self.with_types(checked)
        if self.connectors.stands_in:
            rows, name = self.answers.rows_to_insert(checked), f"insert {len(self.emitted.results) + 1}"
            self.emitted.open(name, rows.schema).add(rows)
            return Result(NOTHING, count=rows.num_rows)
        durable, done = self.store.journal.durable, self.text.done_by(checked.statement)
        # A statement of the file has one name across restarts; any other is a new one each time, and never continued.
        known = sha256(done[0].encode()).hexdigest()[:8] if durable and done else None
        options = settled(checked.sink_options, durable=known is not None)
        sink = find_sink(target.name)(target.name, options, checked.resolved.schema)
        name = f"{uuid4().hex}-insert" if known is None else f"{identity(self.store.journal)}-insert-{known}"
        try:
            count = 0
            if sink.open(name) is None:
                faults.reach("sink opened once")
                rows = self.answers.rows_to_insert(checked)
                count = rows.num_rows
                if count or sink.writes_none:
                    deliver(self.spark, sink, rows, None if known is None else Position(name, "", 0))
                faults.reach("sink written once")
        finally:
            sink.close()
        self.store.commit(done=done)
        if known is not None:
            safely(partial(sink.forget, name))
        return Result(NOTHING, count=count)

    def fold(self, checked: CheckedFold, undo: Undo) -> Result:
        return self._run_on(checked, undo)

    def mutate(self, checked: CheckedMutation, undo: Undo) -> Result:
        mutation = checked.mutation
        undo.put(self.sources.values, checked.source_options)
        find = finding(
            mutation,
            lambda snapshots, query: self.evaluator.answer(query, self.inputs.read(query, snapshots)),
        )
        return Result(NOTHING, count=self.text.write(checked.statement, mutation.target.name, find))

    def block(self, checked: CheckedBlock, undo: Undo) -> Result:
        """Runs a BEGIN … COMMIT block over a stream."""
        checked = replace(checked, members=tuple(self.with_types(c) for c in checked.members))
        self._check_kept_alike(checked)
        name = self.launcher.name(checked, undo)
        return self.launcher.run_on(plan_block(checked, name), checked, undo)

    def _check_kept_alike(self, block: CheckedBlock) -> None:
        """Checks that all targets of a block survive a restart, or none: they share one position."""
        targets = {c.changes.name: c.changes for c in block.members}.values()
        kept = {t.name: t.kind == "stream" or self.store.keeps(t.name) for t in targets}
        if len(set(kept.values())) > 1:
            lost = next(name for name, keeps in kept.items() if not keeps)
            raise NotSupported(
                f'a block cannot change table "{lost}", which is empty after a restart, together with others that are'
                " not",
                hint="give all tables of the block the same durability",
                place=block.statement.place,
            )
