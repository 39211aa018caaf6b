"""Runs a statement over joined streams: each stream has its own position, and each batch is one commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.changes import Changes, Position, together
from millpond.errors import DataError
from millpond.plan.pairs import why_collected
from millpond.plan.pipeline import plan_sides
from millpond.plan.plans import BatchPlan, GroupsPlan, JoinedStreamPlan, JoinPlan
from millpond.query.evaluate import Evaluator
from millpond.store.snapshot import StoreSnapshot
from millpond.streaming.highest import high_of, with_high
from millpond.streaming.statement import NO_MORE, RunningStatement
from millpond.streaming.stream_join import JoinState, Taken

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.spark_pairs import SparkPairs
    from millpond.engine.stage import Stage


@dataclass(frozen=True, slots=True)
class JoinSide:
    """Represents one side of one join."""

    node: Node
    side: int


class Node:
    """Represents one join; ``above`` is the side of the join that takes its rows. ``large`` finds the pairs of large
    batches of each side, where Spark may.
    """

    def __init__(
        self,
        plan: JoinPlan,
        kept: JoinState,
        above: JoinSide | None,
        large: tuple[SparkPairs | None, ...],
    ):
        self.plan = plan
        self.kept = kept
        self.above = above
        self.large = large


@dataclass(frozen=True, slots=True)
class OnSpark:
    """Contains a large batch, and what gives the rows of a side of it."""

    stage: Stage
    batch: Batch


class JoinTree:
    """Evaluates the joins of a statement, and passes their rows on.

    ``lock`` is held from when a batch reads the stored rows until its commit, also while Spark finds its pairs: the two
    sides of a join run one after another. Other statements over a stream wait with it, those over other streams do not.
    """

    def __init__(self, statement: RunningStatement, plan: JoinPlan, evaluator: Evaluator):
        self.statement = statement
        self._evaluator = evaluator
        self.lock = threading.RLock()
        self._inputs: list[JoinSide] = []
        self._nodes = list(self._build(plan, None))
        self._above: dict[int, Stage] = {}
        self._kept_on_spark = why_collected(statement.plan) is None

    def _build(self, plan: JoinPlan, above: JoinSide | None, number: int = 0) -> Iterator[Node]:
        name = self.statement.plan.name
        label = name if number == 0 else f"{name}${number}"
        kept, stages, rule = (
            JoinState(plan.join, self._evaluator, label),
            self.statement.stages,
            self.statement.plan.rule,
        )
        large = (stages.pairs(plan.join, n, plan.sides[n].batch, kept.stored(1 - n), rule) for n in (0, 1))
        node = Node(plan, kept, above, tuple(large))
        yield node
        for n, side in enumerate(plan.sides):
            into = JoinSide(node, n)
            if side.below is None:
                self._inputs.append(into)
            else:
                yield from self._build(side.below, into, 2 * number + n + 1)

    @property
    def tables(self) -> list[str]:
        return [name for node in self._nodes for name in node.kept.tables]

    def set_up(self) -> None:
        self.statement.set_up()
        rule = self.statement.plan.rule
        for node in self._nodes:
            self.statement.stages.check(rule, node.plan.join.pairs)
            self.statement.keep(node.kept.tables)

    def is_for_spark(self, number: int, stage: Stage, batch: Batch) -> bool:
        """Returns whether Spark finds the pairs of a batch of a stream."""
        into = self._inputs[number]
        return into.node.large[into.side] is not None and stage.is_large(batch)

    def take(
        self,
        number: int,
        rows: pa.Table | OnSpark,
        high: int | None,
        snapshots: StoreSnapshot,
        held: ExitStack,
    ) -> tuple[Batch, dict[str, Changes]]:
        """Returns the results of a batch of a stream for the statement, and the changes of all stored state. What is on
        Spark stays there until ``held`` ends.
        """
        into = self._inputs[number]
        mark = into.node.plan.join.sides[into.side].mark
        at = None if high is None or mark is None else high - mark.delay
        changes: dict[str, Changes] = {}
        while True:
            taken = self._join(into, rows, at, snapshots, held)
            changes.update(taken.changes)
            above = into.node.above
            if above is None:
                column = self.window_time
                reached = into.node.kept.time_of(column, taken.reached) if column is not None else None
                return self._batch(taken, rows, reached), changes
            side = above.node.plan.join.sides[above.side]
            at = into.node.kept.time_of(side.mark.column, taken.reached) if side.mark is not None else None
            rows = self._upwards(above, self._batch(taken, rows), snapshots)
            into = above

    def _join(
        self,
        into: JoinSide,
        rows: pa.Table | OnSpark,
        at: int | None,
        snapshots: StoreSnapshot,
        held: ExitStack,
    ) -> Taken:
        node, side = into.node, into.side
        if isinstance(rows, pa.Table):
            return node.kept.take(side, rows, at, snapshots)
        large = node.large[side]
        assert large is not None
        keep = node.above is not None or self._kept_on_spark
        find = partial(large.find, rows.stage, rows.batch, snapshots, held, keep=keep)
        return node.kept.take_large(side, find, at, snapshots)

    def _batch(self, taken: Taken, rows: pa.Table | OnSpark, high: int | None = None) -> Batch:
        """Returns the results of a join for those rows as a batch."""
        if isinstance(rows, pa.Table) or isinstance(taken.joined, pa.Table):
            return self.statement.stages.part(taken.joined, high)
        from millpond.engine.joined_batch import JoinedBatch

        return JoinedBatch(rows.batch, taken.joined, high)

    def _upwards(self, above: JoinSide, joined: Batch, snapshots: StoreSnapshot) -> pa.Table | OnSpark:
        """Returns the rows of a side that is itself a join."""
        plan = above.node.plan.sides[above.side].batch
        if id(above) not in self._above:
            self._above[id(above)] = self.statement.stages.stage(plan, self.statement.plan.rule)
        stage = self._above[id(above)]
        if above.node.large[above.side] is not None and stage.is_large(joined):
            return OnSpark(stage, joined)
        return _shaped(stage.run(joined, snapshots), plan)

    @property
    def window_time(self) -> str | None:
        """Returns the column of the joined rows whose time closes the windows of the statement."""
        plan = self.statement.plan
        window = plan.aggregation.window if isinstance(plan, GroupsPlan) else None
        return window.window.mark if window is not None else None


@dataclass(kw_only=True, eq=False, repr=False)
class JoinedStream(RunningStatement):
    """Represents one of the streams of a statement that joins them, by its number: the results of its batches go to
    that statement.
    """

    plan: JoinedStreamPlan
    joins: JoinTree
    number: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._large: OnSpark | None = None
        self._asked = _no_more
        """Returns what is committed with the results of the batch, asked for when its rows were read."""

    def declare(self) -> None:
        if self.number == 0:
            self.joins.statement.declare()

    def set_up(self) -> None:
        if self.number == 0:
            self.joins.set_up()
            self.errors = self.joins.statement.errors
        self._stage = self.stages.stage(self.plan.batch, self.plan.rule)
        self._mark = self.stages.stage(self.plan.mark, self.plan.rule) if self.plan.mark is not None else None

    def begin(self) -> None:
        if self.number == 0:
            with self.joins.lock:
                self.joins.statement.begin()

    @property
    def owned(self) -> tuple[str, ...]:
        joins = self.joins
        return (*joins.statement.owned, *joins.tables) if self.number == 0 else ()

    def close(self) -> None:
        if self.number == 0:
            self.joins.statement.close()

    def drop(self) -> None:
        if self.number == 0:
            self.joins.statement.drop()
        super().drop()

    def evaluate(self, batch: Batch, snapshots: StoreSnapshot) -> pa.Table:
        """Returns the rows of the batch; none if they stay on Spark, until ``commit`` joins them."""
        self._large = None
        if self.joins.is_for_spark(self.number, self._stage, batch):
            self._large = OnSpark(self._stage, batch)
            if self._mark is not None:
                batch.shared = True
            rows = self.plan.batch.output.arrow().empty_table()
        else:
            rows = _shaped(self._stage.run(batch, snapshots), self.plan.batch)
        return with_high(rows, self._mark, batch, snapshots)

    def _run(
        self,
        batch: Batch,
        snapshots: StoreSnapshot,
        position: Position | None,
        more: Callable[[], Mapping[str, Changes]],
    ) -> int:
        rows = self.evaluate(batch, snapshots)
        with self.joins.lock:
            self._asked = more
            try:
                return self.commit(rows, position)
            finally:
                self._asked = _no_more

    def _attempt(self, batch: Batch, snapshots: StoreSnapshot) -> DataError | None:
        with self.joins.lock:
            return super()._attempt(batch, snapshots)

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        large, self._large = self._large, None
        with ExitStack() as held:
            joined, changes = self.joins.take(
                self.number,
                large or rows.replace_schema_metadata(None),
                high_of(rows),
                self.store.snapshots(),
                held,
            )
            if self._trying:
                return 0
            more, above = together(changes, self._asked()), self.joins.statement
            if not joined.size and joined.high is None:
                return above.pass_over(position, more)
            before = above.errors
            count = above.apply(joined, position, more)
        self.errors += above.errors - before
        self.misses = above.misses if self.number == 0 else self.misses
        return count

    @property
    def late(self) -> int | None:
        return self.joins.statement.late if self.number == 0 else None

    @property
    def waiting(self) -> int | None:
        """Returns the joined rows that wait for a match in a table."""
        return self.joins.statement.waiting if self.number == 0 else None

    def retry(self) -> int:
        with self.joins.lock:
            return self.joins.statement.retry() if self.number == 0 else 0

    def replay(self) -> int:
        """Applies error records again: rows of the stream, and with the first stream also joined rows."""
        replayed = super().replay()
        if self.number == 0:
            with self.joins.lock:
                replayed += self.joins.statement.replay()
        return replayed


def joined_streams(
    statement: RunningStatement, plan: JoinPlan, evaluator: Evaluator
) -> list[RunningStatement]:
    """Returns the statements on the streams that a statement joins."""
    joins = JoinTree(statement, plan, evaluator)
    return [
        JoinedStream(
            plan=side,
            store=statement.store,
            catalog=statement.catalog,
            stages=statement.stages,
            commit_lock=statement.commit_lock,
            ephemeral=statement.ephemeral,
            joins=joins,
            number=number,
        )
        for number, side in enumerate(plan_sides(statement.plan, plan))
    ]


def _no_more() -> Mapping[str, Changes]:
    return NO_MORE


def _shaped(rows: pa.Table, plan: BatchPlan) -> pa.Table:
    arrow = plan.output.arrow()
    return rows.rename_columns(arrow.names).cast(arrow)
