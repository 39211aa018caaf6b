"""BEGIN … COMMIT over a stream: in each batch the statements run in text order; their changes are one commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.app.folding import Folding
from millpond.app.overlay import Overlay
from millpond.app.running import RunningStatement
from millpond.app.store import Moment
from millpond.app.transaction import View
from millpond.changes import Changes, Position
from millpond.plan.plans import PipelinePlan
from millpond.sources.base import SEQ

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.engine.batch import Batch

Effects = tuple[Mapping[str, Changes], Mapping[str, pa.Table]]
"""Changes of tables, and rows for streams."""


class Member:
    """A statement of a block: the rows of a batch in, its effects out."""

    def __init__(self, app: App, plan: PipelinePlan):
        from millpond.engine.local import LocalStage

        evaluator, query = app._evaluator, plan.batch.query
        answer = evaluator.in_process(query) or (lambda tables: evaluator.answer(query, tables))
        self._app = app
        self._plan = plan
        self._stage = LocalStage(plan.batch, answer)
        self._folding = Folding(plan.fold, evaluator, app._inputs) if plan.fold is not None else None

    def find(self, batch: pa.Table, view: Moment) -> Effects:
        """``view`` has the changes of the statements before it."""
        arrow = self._plan.batch.output.arrow()
        rows = self._stage.run(batch, view).rename_columns(arrow.names).cast(arrow)
        if self._folding is not None:
            changes, returned = self._folding.find(rows, view)
            return changes, self._folding.sent(returned)
        name = self._plan.target.name
        if self._plan.target.kind == "stream":
            return {}, {name: rows} if rows.num_rows else {}
        relation = self._app._catalog.find(name)
        if relation is not None and relation.strict:
            view.snapshot(name).refuse_taken(rows, f'table "{name}"')
        return ({name: Changes(rows)} if rows.num_rows else {}), {}


class Block(RunningStatement):
    """One pipeline of several statements. Each sees what the ones before it have changed."""

    in_order = True

    def set_up(self) -> None:
        self._stage = self.stage(self.plan.batch)
        self._members = [Member(self.app, plan) for plan in self.plan.block]

    def evaluate(self, batch: Batch, moment: Moment) -> pa.Table:
        return self._stage.run(batch, moment)

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        arrow = self.plan.batch.output.arrow()
        rows = rows.rename_columns(arrow.names).cast(arrow)
        batch = rows.append_column(SEQ, pa.array(range(rows.num_rows), pa.int64()))
        tables = dict.fromkeys(m.target.name for m in self.plan.block if m.target.kind == "table")
        self.write(lambda now: self._find(batch, now), position, sent=lambda sent: sent, into=tuple(tables))
        return int(rows.num_rows)

    def _find(self, batch: pa.Table, now: Moment) -> tuple[dict[str, Changes], dict[str, pa.Table]]:
        overlays: dict[str, Overlay] = {}
        view = View(now, overlays)
        sent: dict[str, list[pa.Table]] = {}
        for member in self._members:
            changes, rows = member.find(batch, view)
            for name, change in changes.items():
                fitting = self.app._backend(name).check(change)
                if name.lower() not in overlays:
                    overlays[name.lower()] = Overlay(now.snapshot(name))
                overlays[name.lower()].stage(fitting)
            for name, given in rows.items():
                sent.setdefault(name, []).append(given)
        return (
            {name: overlay.changes() for name, overlay in overlays.items()},
            {name: pa.concat_tables(parts) for name, parts in sent.items()},
        )
