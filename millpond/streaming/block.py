"""Runs BEGIN … COMMIT over a stream: in each batch the statements run in text order, and their changes are one
commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from millpond.changes import Changes, Position
from millpond.connectors.source import SEQ
from millpond.plan.plans import BatchPlan, PipelinePlan
from millpond.query.evaluate import Evaluator
from millpond.query.overlay import Overlay
from millpond.query.transaction import View
from millpond.sql.catalog import Catalog
from millpond.store.snapshot import StoreSnapshot
from millpond.streaming.aggregate import target_changes
from millpond.streaming.aggregate_statement import aggregate_of
from millpond.streaming.fold import FoldRunner, Inputs
from millpond.streaming.keyed_topic import Divided, Endings, refuse_taken, with_endings
from millpond.streaming.statement import RunningStatement
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.in_process import LocalStage

Effects = tuple[Mapping[str, Changes], Mapping[str, pa.Table]]
"""Changes of tables, and rows for streams."""


class Member:
    """Evaluates one statement of a block: takes the rows of a batch, returns its effects."""

    def __init__(self, plan: PipelinePlan, catalog: Catalog, evaluator: Evaluator, inputs: Inputs):
        self._catalog = catalog
        self._evaluator = evaluator
        self._plan = plan
        self._stage = self._stage_of(plan.batch)
        self._mark = self._stage_of(plan.mark) if plan.mark is not None else None
        self._folding = FoldRunner(plan.fold, evaluator, inputs) if plan.fold is not None else None
        self._aggregate = aggregate_of(plan, evaluator) if plan.aggregation is not None else None
        self._keys = self._stage_of(plan.keys.batch) if plan.keys is not None and plan.keys.batch else None

    def _stage_of(self, batch: BatchPlan) -> LocalStage:
        from millpond.engine.in_process import LocalStage

        evaluator = self._evaluator
        answer = evaluator.in_process(batch.query) or (lambda tables: evaluator.answer(batch.query, tables))
        return LocalStage(batch, answer)

    @property
    def tables(self) -> Mapping[str, Schema]:
        """Returns the tables that it stores its state in."""
        return self._aggregate.tables if self._aggregate is not None else {}

    def is_new(self, snapshots: StoreSnapshot) -> bool:
        """Returns whether it is an aggregate without groups that has no row yet."""
        aggregate = self._aggregate
        return aggregate is not None and not aggregate.aggregation.keys and aggregate.is_new(snapshots)

    def find(self, batch: pa.Table, view: StoreSnapshot) -> Effects:
        """Returns the effects of the statement. ``view`` has the changes of the statements before it."""
        ended = self._ended(batch, view)
        arrow = self._plan.batch.output.arrow()
        live = batch if ended is None else ended.live
        rows = self._stage.run(live, view).rename_columns(arrow.names).cast(arrow)
        if self._aggregate is not None:
            high = self._mark.run(batch, view).column(0).cast(pa.int64())[0].as_py() if self._mark else None
            merged = self._aggregate.merge(rows, view, high)
            changes, target = dict(merged.changes), self._plan.target
            if target.kind == "stream":
                return changes, {target.name: merged.seen} if merged.seen.num_rows else {}
            once = self._aggregate.aggregation.once
            changes[target.name] = target_changes(merged, view.snapshot(target.name), once=once)
            return {name: change for name, change in changes.items() if len(change)}, {}
        if self._folding is not None:
            changes, returned = self._folding.find(rows, view)
            return changes, self._folding.sent(returned)
        name = self._plan.target.name
        if self._plan.target.kind == "stream":
            return {}, {name: rows} if rows.num_rows else {}
        relation = self._catalog.find(name)
        filled = Changes(rows) if ended is None else with_endings(rows, ended.keys)
        if relation is not None and relation.strict:
            refuse_taken(view, name, filled)
        return ({name: filled} if len(filled) else {}), {}

    def _ended(self, batch: pa.Table, view: StoreSnapshot) -> Divided | None:
        """Returns the batch, divided by what its messages delete, if this statement fills a keyed table of them."""
        plan = self._plan.keys
        if plan is None:
            return None

        def answer(rows: pa.Table) -> pa.Table:
            assert self._keys is not None
            return self._keys.run(rows, view)

        return Endings(plan, self._plan.batch.stream.relation.schema, answer).divide(batch)


@dataclass(kw_only=True, eq=False, repr=False)
class Block(RunningStatement):
    """Runs several statements as one pipeline. Each sees the changes of the ones before it."""

    evaluator: Evaluator
    inputs: Inputs
    in_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._members = [Member(p, self.catalog, self.evaluator, self.inputs) for p in self.plan.block]
        self._own = {name: schema for m in self._members for name, schema in m.tables.items()}

    def set_up(self) -> None:
        self.keep(self._own)

    def begin(self) -> None:
        if any(m.is_new(self.store.snapshots()) for m in self._members):
            self.commit(self._schema.empty_table(), None)

    @property
    def owned(self) -> tuple[str, ...]:
        return (*super().owned, *self._own)

    @property
    def _schema(self) -> pa.Schema:
        return self.plan.batch.output.arrow().append(pa.field(SEQ, pa.int64()))

    def evaluate(self, batch: Batch, snapshots: StoreSnapshot) -> pa.Table:
        """Returns the rows of the stream unchanged."""
        return batch.read()

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        batch = rows.rename_columns(self._schema.names).cast(self._schema)
        tables = dict.fromkeys(m.target.name for m in self.plan.block if m.target.kind == "table")
        into = (*tables, *self._own)
        self.write(lambda now: self._find(batch, now), position, sent=lambda sent: sent, into=into)
        return int(rows.num_rows)

    def _find(self, batch: pa.Table, now: StoreSnapshot) -> tuple[dict[str, Changes], dict[str, pa.Table]]:
        overlays: dict[str, Overlay] = {}
        view = View(now, overlays)
        sent: dict[str, list[pa.Table]] = {}
        own: dict[str, Changes] = {}
        for member in self._members:
            changes, rows = member.find(batch, view)
            for name, change in changes.items():
                if name in self._own:
                    own[name] = change
                    continue
                fitting = self.store.backend(name).check(change)
                if name.lower() not in overlays:
                    overlays[name.lower()] = Overlay(now.snapshot(name))
                overlays[name.lower()].stage(fitting)
            for name, given in rows.items():
                sent.setdefault(name, []).append(given)
        return (
            {**own, **{name: overlay.changes() for name, overlay in overlays.items()}},
            {name: pa.concat_tables(parts) for name, parts in sent.items()},
        )
