"""Evaluates the statements of a block, BEGIN … COMMIT over a stream: in this process, or on Spark's executors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.changes import Changes
from millpond.engine_rule import EngineRule
from millpond.plan.pipeline import is_steady_query
from millpond.plan.plans import BatchPlan, FoldPlan, GroupsPlan, KeyedPlan, RowsPlan
from millpond.query.evaluate import Evaluator
from millpond.sql.catalog import Catalog
from millpond.store.snapshot import StoreSnapshot
from millpond.store.store import Store
from millpond.streaming.aggregate import target_changes
from millpond.streaming.aggregate_statement import aggregate_of
from millpond.streaming.fold import Ahead, FoldRunner, Inputs, fold_ahead, is_outside
from millpond.streaming.keyed_topic import Endings, refuse_taken, with_endings
from millpond.streaming.stages import Stages
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.local_stage import LocalStage

Effects = tuple[Mapping[str, Changes], Mapping[str, pa.Table]]
"""Changes of tables, and rows for streams."""

Finish = Callable[[StoreSnapshot], Effects]
"""Returns the effects of a statement that was evaluated. The tables that it gets have the changes of the statements
before it, and the rows that it changes are read from them.
"""


class Member(ABC):
    """Evaluates one statement of a block."""

    def __init__(self, plan: RowsPlan | GroupsPlan | FoldPlan, evaluator: Evaluator):
        self._evaluator = evaluator
        self._plan_batch = plan.batch
        self._output = plan.batch.output.arrow()
        self._local = self._local_stage(plan.batch)
        self._target = plan.target
        self.name = f"{plan.target.kind} {plan.target.name}"
        self.reads = frozenset(t.table.lower() for t in plan.batch.tables)
        """The tables that its query reads, in lower case."""
        self.repeats = True
        """Whether what it has evaluated last gives the same effects each time, with the same tables."""
        self.writes = frozenset((plan.target.name.lower(),)) if plan.target.kind == "table" else frozenset()

    @property
    def uses(self) -> frozenset[str]:
        """Returns the tables whose rows its evaluation depends on."""
        return self.reads

    @property
    def scans(self) -> int:
        """Returns how often Spark reads a batch for it."""
        return 1

    @property
    def tables(self) -> Mapping[str, Schema]:
        """Returns the tables that it stores its state in."""
        return {}

    def _local_stage(self, batch: BatchPlan) -> LocalStage:
        from millpond.engine.local_stage import LocalStage

        evaluator = self._evaluator
        answer = evaluator.in_process(batch.query) or (lambda tables: evaluator.answer(batch.query, tables))
        return LocalStage(batch, answer)

    def set_up(self, stages: Stages, rule: EngineRule) -> None:
        """Makes what evaluates large batches. Raises NotSupported if the rule does not allow what it needs."""
        self._stage = stages.stage(self._plan_batch, rule)

    def is_large(self, batch: Batch) -> bool:
        """Returns whether the rule leaves the batch to Spark."""
        return self._stage.is_large(batch)

    def is_new(self, snapshots: StoreSnapshot) -> bool:
        """Returns whether it is an aggregate without groups that has no row yet."""
        return False

    @abstractmethod
    def here(self, rows: pa.Table, view: StoreSnapshot) -> Finish:
        """Evaluates rows of the stream in this process. ``view`` has the changes of the statements before it."""

    @abstractmethod
    def on_spark(self, batch: Batch, view: StoreSnapshot) -> Finish:
        """Evaluates a batch on Spark's executors; only results reach this process."""

    def note_success(self, query: str) -> None:
        """Notes that a batch of the query was committed."""
        return

    def _evaluated(self, rows: pa.Table, view: StoreSnapshot) -> pa.Table:
        return self._fitted(self._local.run(rows, view))

    def _evaluated_on_spark(self, batch: Batch, view: StoreSnapshot) -> pa.Table:
        return self._fitted(self._stage.run_on_spark(batch, view))

    def _fitted(self, rows: pa.Table) -> pa.Table:
        return rows.rename_columns(self._output.names).cast(self._output)


class GroupsMember(Member):
    """Evaluates a live aggregate. Executors make the groups of a batch, which are merged with the stored ones here."""

    def __init__(self, plan: GroupsPlan, evaluator: Evaluator):
        super().__init__(plan, evaluator)
        self._aggregate = aggregate_of(plan, evaluator)
        final = plan.aggregation.final
        self.reads |= {i.relation.name.lower() for i in final.inputs}
        self.repeats = is_steady_query(final)
        self._plan_mark = plan.mark
        self._local_mark = self._local_stage(plan.mark) if plan.mark is not None else None

    @property
    def tables(self) -> Mapping[str, Schema]:
        return self._aggregate.tables

    @property
    def scans(self) -> int:
        return 1 if self._plan_mark is None else 2

    def set_up(self, stages: Stages, rule: EngineRule) -> None:
        super().set_up(stages, rule)
        self._mark = stages.stage(self._plan_mark, rule) if self._plan_mark is not None else None
        stages.check(rule, self._aggregate.aggregation.merge, self._aggregate.aggregation.final)

    def is_new(self, snapshots: StoreSnapshot) -> bool:
        return not self._aggregate.aggregation.keys and self._aggregate.is_new(snapshots)

    def here(self, rows: pa.Table, view: StoreSnapshot) -> Finish:
        high = _first(self._local_mark.run(rows, view)) if self._local_mark is not None else None
        return partial(self._merged, self._evaluated(rows, view), high)

    def on_spark(self, batch: Batch, view: StoreSnapshot) -> Finish:
        high = _first(self._mark.run_on_spark(batch, view)) if self._mark is not None else None
        return partial(self._merged, self._evaluated_on_spark(batch, view), high)

    def _merged(self, groups: pa.Table, high: int | None, view: StoreSnapshot) -> Effects:
        merged = self._aggregate.merge(groups, view, high)
        changes, name = dict(merged.changes), self._target.name
        if self._target.kind == "stream":
            return changes, {name: merged.seen} if merged.seen.num_rows else {}
        once = self._aggregate.aggregation.once
        changes[name] = target_changes(merged, view.snapshot(name), once=once)
        return {name: change for name, change in changes.items() if len(change)}, {}


def _first(rows: pa.Table) -> int | None:
    found: int | None = rows.column(0).cast(pa.int64())[0].as_py()
    return found


class FoldMember(Member):
    """Evaluates an UPDATE, DELETE, MERGE or UPSERT."""

    def __init__(self, plan: FoldPlan, evaluator: Evaluator, inputs: Inputs, store: Store):
        super().__init__(plan, evaluator)
        self._plan = plan
        self._store = store
        self._folding = FoldRunner(plan.fold, evaluator, inputs)
        self.reads |= {i.relation.name.lower() for i in plan.fold.tables}

    @property
    def uses(self) -> frozenset[str]:
        return self.reads | self.writes

    def set_up(self, stages: Stages, rule: EngineRule) -> None:
        super().set_up(stages, rule)
        self._ahead = fold_ahead(self._plan, rule, self._stage, self._folding, stages, self._evaluator)

    def here(self, rows: pa.Table, view: StoreSnapshot) -> Finish:
        return partial(self._folded_here, self._evaluated(rows, view))

    def on_spark(self, batch: Batch, view: StoreSnapshot) -> Finish:
        ahead = self._ahead.fold(batch, view)
        self.repeats = ahead is not None  # the events of a fold that is made here may call any function
        if ahead is None:
            return partial(self._folded_here, self._evaluated_on_spark(batch, view))
        return partial(self._folded_ahead, ahead)

    def note_success(self, query: str) -> None:
        self._ahead.note_success(query)

    def _folded_here(self, events: pa.Table, view: StoreSnapshot) -> Effects:
        changes, returned = self._folding.find(events, view)
        return changes, self._folding.sent(returned)

    def _folded_ahead(self, ahead: Ahead, view: StoreSnapshot) -> Effects:
        """Returns what Spark has folded. Raises Moved if the rows that it has folded onto are others."""
        outside = is_outside(self._store, self._target.name)
        changes, returned = self._ahead.changes(ahead, view, outside)
        return changes, self._folding.sent(returned)


class RowsMember(Member):
    """Evaluates an INSERT whose rows do not depend on one another."""

    def __init__(self, plan: RowsPlan, evaluator: Evaluator, catalog: Catalog):
        super().__init__(plan, evaluator)
        self._catalog = catalog

    def here(self, rows: pa.Table, view: StoreSnapshot) -> Finish:
        return partial(self._filled, Changes(self._evaluated(rows, view)))

    def on_spark(self, batch: Batch, view: StoreSnapshot) -> Finish:
        return partial(self._filled, Changes(self._evaluated_on_spark(batch, view)))

    def _filled(self, changes: Changes, view: StoreSnapshot) -> Effects:
        name = self._target.name
        if self._target.kind == "stream":
            return {}, {name: changes.rows} if len(changes) else {}
        relation = self._catalog.find(name)
        if relation is not None and relation.strict:
            refuse_taken(view, name, changes)
        return ({name: changes} if len(changes) else {}), {}


class KeyedMember(RowsMember):
    """Evaluates an INSERT into a keyed table, over messages that may delete a row of it."""

    def __init__(self, plan: KeyedPlan, evaluator: Evaluator, catalog: Catalog):
        super().__init__(plan, evaluator, catalog)
        self._keys = plan.keys
        self._key_stage = self._local_stage(plan.keys.batch) if plan.keys.batch is not None else None
        self._stream = plan.batch.stream.relation.schema

    @property
    def scans(self) -> int:
        return 2

    def here(self, rows: pa.Table, view: StoreSnapshot) -> Finish:
        ended = self._endings(view).divide(rows)
        if ended is None:
            return super().here(rows, view)
        return partial(self._filled, with_endings(self._evaluated(ended.live, view), ended.keys))

    def on_spark(self, batch: Batch, view: StoreSnapshot) -> Finish:
        return partial(self._filled, self._endings(view).elsewhere(self._stage, batch, view, self._output))

    def _endings(self, view: StoreSnapshot) -> Endings:
        def answer(rows: pa.Table) -> pa.Table:
            assert self._key_stage is not None
            return self._key_stage.run(rows, view)

        return Endings(self._keys, self._stream, answer)


def member_of(
    plan: RowsPlan | GroupsPlan | FoldPlan,
    catalog: Catalog,
    evaluator: Evaluator,
    inputs: Inputs,
    store: Store,
) -> Member:
    """Returns what evaluates a statement of a block, by its kind."""
    match plan:
        case GroupsPlan():
            return GroupsMember(plan, evaluator)
        case FoldPlan():
            return FoldMember(plan, evaluator, inputs, store)
        case KeyedPlan():
            return KeyedMember(plan, evaluator, catalog)
        case RowsPlan():
            return RowsMember(plan, evaluator, catalog)
