"""Runs BEGIN … COMMIT over a stream: in each batch the statements run in text order, and their changes are one
commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from millpond.changes import Changes, Position
from millpond.connectors.source import SEQ
from millpond.plan.plans import BatchPlan, BlockPlan, FoldPlan, GroupsPlan, KeyedPlan, RowsPlan, Target
from millpond.query.evaluate import Evaluator
from millpond.query.overlay import Overlay
from millpond.query.transaction import View
from millpond.sql.catalog import Catalog
from millpond.store.snapshot import StoreSnapshot
from millpond.streaming.aggregate import target_changes
from millpond.streaming.aggregate_statement import aggregate_of
from millpond.streaming.fold import FoldRunner, Inputs
from millpond.streaming.keyed_topic import Endings, refuse_taken, with_endings
from millpond.streaming.statement import RunningStatement
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.local_stage import LocalStage

Effects = tuple[Mapping[str, Changes], Mapping[str, pa.Table]]
"""Changes of tables, and rows for streams."""


class Member(ABC):
    """Evaluates one statement of a block: takes the rows of a batch, returns its effects."""

    def __init__(self, batch: BatchPlan, target: Target, evaluator: Evaluator):
        self._evaluator = evaluator
        self._output = batch.output.arrow()
        self._stage = self._stage_of(batch)
        self._target = target

    def _stage_of(self, batch: BatchPlan) -> LocalStage:
        from millpond.engine.local_stage import LocalStage

        evaluator = self._evaluator
        answer = evaluator.in_process(batch.query) or (lambda tables: evaluator.answer(batch.query, tables))
        return LocalStage(batch, answer)

    def _evaluated(self, batch: pa.Table, view: StoreSnapshot) -> pa.Table:
        return self._stage.run(batch, view).rename_columns(self._output.names).cast(self._output)

    @property
    def tables(self) -> Mapping[str, Schema]:
        """Returns the tables that it stores its state in."""
        return {}

    def is_new(self, snapshots: StoreSnapshot) -> bool:
        """Returns whether it is an aggregate without groups that has no row yet."""
        return False

    @abstractmethod
    def find(self, batch: pa.Table, view: StoreSnapshot) -> Effects:
        """Returns the effects of the statement. ``view`` has the changes of the statements before it."""


class GroupsMember(Member):
    """Evaluates a live aggregate."""

    def __init__(self, plan: GroupsPlan, evaluator: Evaluator):
        super().__init__(plan.batch, plan.target, evaluator)
        self._aggregate = aggregate_of(plan, evaluator)
        self._mark = self._stage_of(plan.mark) if plan.mark is not None else None

    @property
    def tables(self) -> Mapping[str, Schema]:
        return self._aggregate.tables

    def is_new(self, snapshots: StoreSnapshot) -> bool:
        return not self._aggregate.aggregation.keys and self._aggregate.is_new(snapshots)

    def find(self, batch: pa.Table, view: StoreSnapshot) -> Effects:
        rows = self._evaluated(batch, view)
        high = self._mark.run(batch, view).column(0).cast(pa.int64())[0].as_py() if self._mark else None
        merged = self._aggregate.merge(rows, view, high)
        changes, name = dict(merged.changes), self._target.name
        if self._target.kind == "stream":
            return changes, {name: merged.seen} if merged.seen.num_rows else {}
        once = self._aggregate.aggregation.once
        changes[name] = target_changes(merged, view.snapshot(name), once=once)
        return {name: change for name, change in changes.items() if len(change)}, {}


class FoldMember(Member):
    """Evaluates an UPDATE, DELETE, MERGE or UPSERT."""

    def __init__(self, plan: FoldPlan, evaluator: Evaluator, inputs: Inputs):
        super().__init__(plan.batch, plan.target, evaluator)
        self._folding = FoldRunner(plan.fold, evaluator, inputs)

    def find(self, batch: pa.Table, view: StoreSnapshot) -> Effects:
        changes, returned = self._folding.find(self._evaluated(batch, view), view)
        return changes, self._folding.sent(returned)


class RowsMember(Member):
    """Evaluates an INSERT whose rows do not depend on one another."""

    def __init__(self, plan: RowsPlan, evaluator: Evaluator, catalog: Catalog):
        super().__init__(plan.batch, plan.target, evaluator)
        self._catalog = catalog

    def find(self, batch: pa.Table, view: StoreSnapshot) -> Effects:
        rows, name = self._evaluated(batch, view), self._target.name
        if self._target.kind == "stream":
            return {}, {name: rows} if rows.num_rows else {}
        return self._filled(Changes(rows), view)

    def _filled(self, changes: Changes, view: StoreSnapshot) -> Effects:
        name = self._target.name
        relation = self._catalog.find(name)
        if relation is not None and relation.strict:
            refuse_taken(view, name, changes)
        return ({name: changes} if len(changes) else {}), {}


class KeyedMember(RowsMember):
    """Evaluates an INSERT into a keyed table, over messages that may delete a row of it."""

    def __init__(self, plan: KeyedPlan, evaluator: Evaluator, catalog: Catalog):
        super().__init__(plan, evaluator, catalog)
        self._keys = plan.keys
        self._key_stage = self._stage_of(plan.keys.batch) if plan.keys.batch is not None else None
        self._stream = plan.batch.stream.relation.schema

    def find(self, batch: pa.Table, view: StoreSnapshot) -> Effects:
        def answer(rows: pa.Table) -> pa.Table:
            assert self._key_stage is not None
            return self._key_stage.run(rows, view)

        ended = Endings(self._keys, self._stream, answer).divide(batch)
        if ended is None:
            return super().find(batch, view)
        return self._filled(with_endings(self._evaluated(ended.live, view), ended.keys), view)


def _member(
    plan: RowsPlan | GroupsPlan | FoldPlan, catalog: Catalog, evaluator: Evaluator, inputs: Inputs
) -> Member:
    match plan:
        case GroupsPlan():
            return GroupsMember(plan, evaluator)
        case FoldPlan():
            return FoldMember(plan, evaluator, inputs)
        case KeyedPlan():
            return KeyedMember(plan, evaluator, catalog)
        case RowsPlan():
            return RowsMember(plan, evaluator, catalog)


@dataclass(kw_only=True, eq=False, repr=False)
class Block(RunningStatement):
    """Runs several statements as one pipeline. Each sees the changes of the ones before it."""

    plan: BlockPlan
    evaluator: Evaluator
    inputs: Inputs
    in_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._members = [_member(p, self.catalog, self.evaluator, self.inputs) for p in self.plan.members]
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
        tables = dict.fromkeys(m.target.name for m in self.plan.members if m.target.kind == "table")
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
