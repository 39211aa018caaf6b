"""A statement over joined streams: each stream has a position of its own, and its batches are commits of the whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.changes import Changes, Position
from millpond.plan.pipeline import plan_sides
from millpond.plan.plans import BatchPlan, JoinPlan, PipelinePlan
from millpond.query.evaluate import Evaluator
from millpond.store.store import Moment
from millpond.streaming.statement import NO_MORE, RunningStatement, high_of, together
from millpond.streaming.stream_join import KeptJoin, Taken

if TYPE_CHECKING:
    from millpond.engine.batch import Batch
    from millpond.engine.stage import Stage


@dataclass(frozen=True, slots=True)
class Place:
    """One side of one join."""

    node: Node
    side: int


class Node:
    """One join; ``above`` is the place at which another one takes its rows."""

    def __init__(self, plan: JoinPlan, kept: KeptJoin, above: Place | None):
        self.plan = plan
        self.kept = kept
        self.above = above


class Joining:
    """The joins of a statement, and what becomes of the rows that they give.

    ``lock`` is held from the time that a batch looks at what is kept until its commit: the two sides of a join come
    one after another, and other statements do not wait.
    """

    def __init__(self, statement: RunningStatement, plan: JoinPlan, evaluator: Evaluator):
        self.statement = statement
        self._evaluator = evaluator
        self.lock = threading.RLock()
        self._places: list[Place] = []
        self._nodes = list(self._build(plan, None))
        self._above: dict[int, Stage] = {}

    def _build(self, plan: JoinPlan, above: Place | None, number: int = 0) -> Iterator[Node]:
        name = self.statement.plan.name
        label = name if number == 0 else f"{name}${number}"
        node = Node(plan, KeptJoin(plan.join, self._evaluator, label), above)
        yield node
        for n, side in enumerate(plan.sides):
            place = Place(node, n)
            if side.below is None:
                self._places.append(place)
            else:
                yield from self._build(side.below, place, 2 * number + n + 1)

    @property
    def tables(self) -> list[str]:
        return [name for node in self._nodes for name in node.kept.tables]

    def set_up(self) -> None:
        self.statement.set_up()
        for node in self._nodes:
            self.statement.keep(node.kept.tables)

    def take(
        self, number: int, rows: pa.Table, high: int | None, moment: Moment
    ) -> tuple[Batch, dict[str, Changes]]:
        """What a batch of a stream gives to the statement, and the changes of all that is kept."""
        place = self._places[number]
        mark = place.node.plan.join.sides[place.side].mark
        at = None if high is None or mark is None else high - mark.delay
        changes: dict[str, Changes] = {}
        while True:
            taken = place.node.kept.take(place.side, rows, at, moment)
            changes.update(taken.changes)
            if place.node.above is None:
                column = self.window_time
                reached = place.node.kept.time_of(column, taken.reached) if column is not None else None
                return self.statement.stages.part(taken.joined, reached), changes
            rows, at = self._upwards(place.node, taken, moment)
            place = place.node.above

    def _upwards(self, node: Node, taken: Taken, moment: Moment) -> tuple[pa.Table, int | None]:
        above = node.above
        assert above is not None
        plan, side = above.node.plan.sides[above.side].batch, above.node.plan.join.sides[above.side]
        if id(node) not in self._above:
            self._above[id(node)] = self.statement.stages.stage(plan)
        rows = self._above[id(node)].run(self.statement.stages.part(taken.joined), moment)
        at = node.kept.time_of(side.mark.column, taken.reached) if side.mark is not None else None
        return _shaped(rows, plan), at

    @property
    def window_time(self) -> str | None:
        """The column of the joined rows whose time closes the windows of the statement."""
        aggregation = self.statement.plan.aggregation
        window = aggregation.window if aggregation is not None else None
        return window.window.mark if window is not None else None


@dataclass(kw_only=True, eq=False, repr=False)
class JoinedStream(RunningStatement):
    """One of the streams of a statement that joins them, by its number: what its batches give goes to that
    statement."""

    joining: Joining
    number: int

    def declare(self) -> None:
        if self.number == 0:
            self.joining.statement.declare()

    def set_up(self) -> None:
        if self.number == 0:
            self.joining.set_up()
            self.errors = self.joining.statement.errors
        self._stage = self.stages.stage(self.plan.batch)
        self._mark = self.stages.stage(self.plan.mark) if self.plan.mark is not None else None

    def begin(self) -> None:
        if self.number == 0:
            with self.joining.lock:
                self.joining.statement.begin()

    @property
    def owned(self) -> tuple[str, ...]:
        joining = self.joining
        return (*joining.statement.owned, *joining.tables) if self.number == 0 else ()

    def close(self) -> None:
        if self.number == 0:
            self.joining.statement.close()

    def drop(self) -> None:
        if self.number == 0:
            self.joining.statement.drop()
        super().drop()

    def evaluate(self, batch: Batch, moment: Moment) -> pa.Table:
        rows = _shaped(self._stage.run(batch, moment), self.plan.batch)
        return self.with_high(rows, self._mark, batch, moment)

    def _run(
        self, batch: Batch, moment: Moment, position: Position | None, more: Mapping[str, Changes] = NO_MORE
    ) -> int:
        rows = self.evaluate(batch, moment)
        with self.joining.lock:
            self._more = more
            try:
                return self.commit(rows, position)
            finally:
                self._more = NO_MORE

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        joined, changes = self.joining.take(
            self.number, rows.replace_schema_metadata(None), high_of(rows), self.store.moment()
        )
        if self._trying:
            return 0
        more, above = together(changes, self._more), self.joining.statement
        if not joined.size and joined.high is None:
            return above.pass_over(position, more)
        before = above.errors
        count = above.apply(joined, position, more)
        self.errors += above.errors - before
        self.misses = above.misses if self.number == 0 else self.misses
        return count

    @property
    def late(self) -> int | None:
        return self.joining.statement.late if self.number == 0 else None

    @property
    def waiting(self) -> int | None:
        """Joined rows that wait for a match in a table."""
        return self.joining.statement.waiting if self.number == 0 else None

    def retry(self) -> int:
        with self.joining.lock:
            return self.joining.statement.retry() if self.number == 0 else 0

    def replay(self) -> int:
        """Rows of the stream, and with the first stream also joined rows, that could not be processed."""
        replayed = super().replay()
        if self.number == 0:
            with self.joining.lock:
                replayed += self.joining.statement.replay()
        return replayed


def joined_streams(
    statement: RunningStatement, plan: PipelinePlan, evaluator: Evaluator
) -> list[RunningStatement]:
    """The statements on the streams that a statement joins."""
    assert plan.join is not None
    joining = Joining(statement, plan.join, evaluator)
    return [
        JoinedStream(
            plan=side,
            store=statement.store,
            catalog=statement.catalog,
            stages=statement.stages,
            turn=statement.turn,
            ephemeral=statement.ephemeral,
            joining=joining,
            number=number,
        )
        for number, side in enumerate(plan_sides(plan))
    ]


def _shaped(rows: pa.Table, plan: BatchPlan) -> pa.Table:
    arrow = plan.output.arrow()
    return rows.rename_columns(arrow.names).cast(arrow)
