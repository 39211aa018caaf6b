"""Builds a table or stream beside the one that it will replace.

What is built is an ordinary table or stream with its own statement, under a name that only the app can give: ``t$next``
beside ``t``. The old one is served, joined and filled meanwhile. When the new one has everything that the old one has,
``replace/swap.py`` exchanges both in one commit. An entry of the journal tells a start after a kill what was being
built: that is removed, and the old one goes on.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from millpond import allowance, faults
from millpond.changes import Offset
from millpond.engine.courtesy import Courtesy
from millpond.errors import Conflict, Error, InUse
from millpond.journal.catalog import Entry
from millpond.loading.load import TableLoads
from millpond.loading.loader import Loader
from millpond.plan.plans import LoadPlan, PipelinePlan, ViewPlan, target_of
from millpond.plan.statement_plan import plan_statement
from millpond.replace.leftovers import BUILDING
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checked import CheckedStreamAs, CheckedTableAs
from millpond.sql.printer import print_name
from millpond.sql.reserved_names import shadow_of
from millpond.statements.declarations import Declarations
from millpond.statements.launch import Launcher
from millpond.statements.lifetime import Lifetime
from millpond.statements.saved_statements import SavedStatements
from millpond.store.store import Store
from millpond.store.undo import Undo
from millpond.streaming.runner import Runner
from millpond.views.materialized_view import Views

if TYPE_CHECKING:
    pass

HELD = ("paused", "stopped")
"""The states of a statement that does nothing until somebody lets it go on."""
_PAUSE = 0.02
"""Seconds between two looks whether it has caught up."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """Represents a table or stream that is being built, and the one that it will replace."""

    relation: Relation
    before: Relation

    @property
    def query(self) -> str:
        """Returns the name of the statement that fills it."""
        return f"{self.relation.kind}:{self.relation.name}"

    @property
    def replaced(self) -> str:
        """Returns the name of the statement that fills the old one."""
        return f"{self.before.kind}:{self.before.name}"

    @property
    def old(self) -> str:
        """Returns the old one, for messages."""
        return f'{self.before.kind} "{self.before.name}"'


@dataclass(frozen=True, eq=False, repr=False)
class Shadows:
    """Builds tables and streams: ``begin``, then ``catch_up``. Until both are swapped, the undo of the statement
    removes all that was built.
    """

    lock: threading.RLock
    lifetime: Lifetime
    catalog: Catalog
    store: Store
    saved: SavedStatements
    declarations: Declarations
    launcher: Launcher
    loader: Loader
    table_loads: TableLoads
    views: Views
    runner: Runner

    def begin(self, checked: CheckedTableAs | CheckedStreamAs, before: Relation, undo: Undo) -> Shadow:
        """Begins to build the table or stream of a statement beside ``before``. A load and a view over tables are
        complete when it returns; a statement over a stream has begun to read.
        """
        relation = replace(checked.relation, name=shadow_of(checked.relation.name))
        shadow, built = Shadow(relation, before), replace(checked, relation=relation)
        if relation.name in self.catalog:
            kept = self.saved.relation(shadow.query) is not None
            swap = f"ALTER TABLE {print_name(before.name)} SWAP WITH {print_name(relation.name)}"
            raise InUse(
                f'{shadow.old} has "{relation.name}" beside it'
                if kept
                else f"{shadow.old} is being replaced by another statement",
                hint=f"{swap}, or DROP TABLE {print_name(relation.name)}, first"
                if kept
                else "wait until that is done, or end it: what is there stays as it is then",
                place=checked.statement.place,
            )
        journal = self.store.journal
        undo.on_failure(partial(journal.drop_entry, BUILDING, relation.name))
        journal.put_entry(Entry(relation.name, BUILDING, checked.statement.text))
        faults.reach("replace: begun")
        self.declarations.declare(built, undo)
        plan = plan_statement(built, shadow.query, target_of(relation))
        match plan:
            case PipelinePlan():
                self.launcher.start(plan, built, undo, None)
                self.runner.starter.begin()
            case ViewPlan():
                self.views.add(plan, relation.schema)
            case LoadPlan():
                self._load(plan)
        return shadow

    def _load(self, plan: LoadPlan) -> None:
        if not self.table_loads.is_from_outside(plan):
            self.table_loads.load(plan)
            return
        failed: list[Error] = []
        self.loader.begin(plan, failed.append)
        self.loader.wait([plan.target.name])
        if failed:
            raise failed[0]

    def catch_up(self, shadow: Shadow, *, held: bool = False) -> None:
        """Waits until it has what its streams have had when this was called; with ``held``, not while it is paused or
        stopped. Others may run statements meanwhile. Raises the error of what builds it.
        """
        waiting = threading.Condition(self.lock)
        ends: dict[str, Offset] = {}
        with waiting:
            while not self._has_reached(shadow, ends):
                self.runner.starter.start_waiting()
                self.runner.pull(shadow.query)
                if self._has_reached(shadow, ends) or (held and self.state_of(shadow) in HELD):
                    break
                allowance.check()
                waiting.wait(_PAUSE)
        self.check_same(shadow)
        faults.reach("replace: caught up")

    def _has_reached(self, shadow: Shadow, ends: dict[str, Offset]) -> bool:
        self.lifetime.check_open()
        self.check_there(shadow)
        if (failed := self.runner.starter.failed_starts.get(shadow.query)) is not None:
            raise failed.error
        done = not any(w.plan.query == shadow.query for w in self.runner.starter)
        for pipeline in [p for p in self.runner if p.plan.query == shadow.query]:
            pipeline.check()
            if pipeline.courtesy is None:
                pipeline.courtesy = Courtesy(partial(self._batches_of_others, shadow))
            if pipeline.name not in ends:
                ends[pipeline.name] = pipeline.source.latest(None)
            done = done and pipeline.reached(ends[pipeline.name])
        return done

    def _batches_of_others(self, shadow: Shadow) -> int:
        return sum(p.batches for p in self.runner if p.plan.query != shadow.query)

    def state_of(self, shadow: Shadow) -> str:
        """Returns the state of the statement that builds it."""
        return self.runner.state_of(shadow.query)

    def check_there(self, shadow: Shadow) -> None:
        """Raises an error if the new one is not there any more."""
        if self.catalog.find(shadow.relation.name) is None:
            raise Conflict(f"{shadow.old} stays as it is: what was built beside it was dropped")

    def check_same(self, shadow: Shadow) -> None:
        """Raises an error if the old one is not what it was when this began, or the new one is gone."""
        self.check_there(shadow)
        if self.catalog.find(shadow.before.name) is not shadow.before:
            raise Conflict(
                f"{shadow.old} was changed while the new one was built: it stays as it is",
                hint="run the statement again",
            )
