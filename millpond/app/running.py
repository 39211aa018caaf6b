"""Running statements: what becomes of a batch of their stream.

A statement gets a batch and the position after it, and makes both count in one commit. Each kind is a class; the
engine knows only ``apply``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.app.store import Moment
from millpond.changes import Changes, Position
from millpond.plan.plans import BatchPlan, PipelinePlan

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.engine.batch import Batch
    from millpond.engine.stage import Stage


class RunningStatement(ABC):
    """One running statement of an app. If ``ephemeral`` its position is not kept: it begins anew after a restart."""

    def __init__(self, app: App, plan: PipelinePlan, *, ephemeral: bool):
        self.app = app
        self.plan = plan
        self.ephemeral = ephemeral
        self._seen: Position | None = None
        if plan.target.kind == "table":
            app._store.fills(plan.name, plan.target.name)

    @property
    def position(self) -> Position | None:
        """The newest position that counts."""
        return self._seen if self.ephemeral else self.app._store.position(self.plan.name)

    def set_up(self) -> None:
        """Makes what the statement needs beside its target. Called before the first batch of a run."""
        return

    def drop(self) -> None:
        """Removes what ``set_up`` made."""
        return

    def apply(self, batch: Batch, position: Position) -> int:
        """Makes what the batch gives and the position count, both or neither; answers how many rows it gave."""
        rows = self.evaluate(batch)
        with self.app._runner.delivering():
            count = self.commit(rows, None if self.ephemeral else position)
        self._seen = position
        return count

    @abstractmethod
    def evaluate(self, batch: Batch) -> pa.Table:
        """What the batch gives, before anything counts."""

    @abstractmethod
    def commit(self, rows: pa.Table, position: Position | None) -> int:
        """Makes it and the position count, in one commit; answers how many rows it gave."""

    def stage(self, plan: BatchPlan) -> Stage:
        """What evaluates a plan over batches; it is made once and kept."""
        from millpond.engine.stage import Stage

        return Stage(plan, self.app._evaluator.in_process(plan.query))

    def emit(self, rows: pa.Table) -> None:
        """Hands rows to whoever reads along."""
        if self.ephemeral or self.app._on_emit is None:
            self.app._emitted[self.plan.name].add(rows)
        elif rows.num_rows:
            self.app._on_emit(self.plan.name, rows)


class Rows(RunningStatement):
    """A query whose rows each count by themselves: into a table, a stream, or to whoever asked."""

    def set_up(self) -> None:
        self._stage = self.stage(self.plan.batch)

    def evaluate(self, batch: Batch) -> pa.Table:
        rows = self._stage.run(batch, self.app._store.moment())
        arrow = self.plan.batch.output.arrow()
        return rows.rename_columns(arrow.names).cast(arrow)

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        store, target = self.app._store, self.plan.target
        match target.kind:
            case "table":
                self._insert(rows, position)
            case "stream":
                store.commit(position=position, sent={target.name: rows})
            case "emit":
                # Shown before they count, so that a kill loses none.
                self.emit(rows)
                if position is not None:
                    store.commit(position=position)
        return int(rows.num_rows)

    def _insert(self, rows: pa.Table, position: Position | None) -> None:
        """A batch of INSERT or of a live table. Only INSERT is refused a key that is there."""
        store, name = self.app._store, self.plan.target.name
        relation = self.app._catalog.find(name)
        if relation is None or not relation.strict or self.plan.name == f"table:{name}":
            store.commit({name: Changes(rows)}, position)
            return

        def found(moment: Moment) -> tuple[dict[str, Changes], None]:
            moment.snapshot(name).refuse_taken(rows, f'table "{name}"')
            return {name: Changes(rows)}, None

        store.write(found, position, into=(name,))
