"""Queues running statements, with their names, their inputs and their targets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from millpond import faults
from millpond.changes import Offset, Position
from millpond.connectors.source import NativeSource
from millpond.errors import AlreadyExists, NotSupported
from millpond.loading.discovered_columns import KeptColumns
from millpond.loading.open_sources import Sources
from millpond.plan.connectors import Connectors
from millpond.plan.plans import PipelinePlan, StatementPlan, Target, target_of
from millpond.query.result import Result
from millpond.sql.catalog import Relation
from millpond.sql.checked import CheckedBlock, CheckedInsert, CheckedRunnable, CheckedSelect, CheckedWrite
from millpond.sql.joins import join_warnings
from millpond.sql.querynames import made_name
from millpond.statements.declarations import Declarations, query_entry
from millpond.statements.drop import Removals
from millpond.statements.queries import Queries
from millpond.statements.text_run import TextRun
from millpond.store.catalog import SavedQuery, SavedRelation
from millpond.store.query_states import DROPPED, QueryStates
from millpond.store.store import Store
from millpond.store.undo import Undo
from millpond.streaming.emitted_rows import Emitted
from millpond.streaming.runner import Runner

log = logging.getLogger("millpond")


@dataclass(frozen=True, eq=False, repr=False)
class Launcher:
    """Queues statements. ``keep_copy`` and ``keep_side_input`` store what they read outside in internal tables."""

    text: TextRun
    runner: Runner
    queries: Queries
    query_states: QueryStates
    declarations: Declarations
    removals: Removals
    columns: KeptColumns
    sources: Sources
    store: Store
    connectors: Connectors
    emitted: Emitted
    keep_copy: Callable[[Relation], None]
    keep_side_input: Callable[[Relation], None]
    read_only: bool
    adopted: Callable[[PipelinePlan], Offset | None]
    """Returns where a statement begins that goes on for a job of another system."""

    def name(self, checked: CheckedRunnable, undo: Undo) -> str:
        """Returns the name in the statement, or one that is the same after a restart."""
        named = checked.query_options.get("query.name")
        key, _, number = self.text.count(checked.statement).partition(":")
        undo.on_failure(lambda: self.text.counts.update({key: int(number)}))
        taken = {known.lower() for known in self.queries.names}
        name = str(named) if named else made_name(checked, int(number), taken)
        if named and name.lower() in taken:
            raise AlreadyExists(f'query "{named}" already exists', hint="give it another 'query.name'")
        if named and not self.text.in_file and self.query_states.get(name) == DROPPED:
            # A query of that name was dropped: that is forgotten.
            undo.on_failure(partial(self.query_states.set, name, DROPPED))
            self.query_states.note(name, None)
        if self.text.in_file and isinstance(checked, CheckedSelect):
            # The position up to which it was printed is known from the run before.
            undo.on_failure(partial(self.runner.take_out, name))
        else:
            undo.on_failure(partial(self.removals.take_back_query, name))
        return name

    def target(self, checked: CheckedWrite, query: str) -> Target:
        """Returns where the rows of a running statement go; in a test, rows that would leave the app are collected
        instead.
        """
        target = checked.changes
        if target.kind == "sink" and self.connectors.stands_in:
            self.emitted.open(query, target.schema.arrow())
            return Target("emit", query)
        return target_of(target, checked.sink_options if isinstance(checked, CheckedInsert) else None)

    def run_on(self, plan: StatementPlan, checked: CheckedRunnable, undo: Undo) -> Result:
        """Runs a statement for as long as the app runs."""
        self.start(plan, checked, undo, query_entry(plan.name, checked))
        return Result(pa.table({}), count=0)

    def start(
        self,
        plan: StatementPlan,
        checked: CheckedRunnable,
        undo: Undo,
        entry: SavedRelation | SavedQuery | None,
        *,
        new: bool = True,
    ) -> None:
        """Queues a running statement, which starts after the text has run. ``entry`` is its journal entry, stored once
        all that it needs is there.
        """
        if self.read_only:
            raise NotSupported(
                "this statement runs for as long as an app, and the state directory is open for reading only",
                hint="start the app with millpond run, then query it",
                place=checked.statement.place,
            )
        if self.query_states.get(plan.name) == DROPPED:
            if entry is not None and new:
                self.declarations.keep(entry, ())
            return
        for one in checked.members if isinstance(checked, CheckedBlock) else (checked,):
            undo.put(self.sources.values, one.source_options)
        undo.on_failure(self.removals.drop_unread)
        for i in checked.inputs:
            if i.relation.captured:
                self.keep_copy(i.relation)
            elif i.relation.kind == "source" and not i.relation.running:
                self.keep_side_input(i.relation)
        faults.reach("inputs kept")
        sources = [self.sources.open(stream) for stream in plan.streams]
        for source in sources:
            if isinstance(source, NativeSource):
                source.prepare()
            if source.local:
                raise NotSupported(
                    f"a running query cannot read {source.kind}://: only this process can",
                    hint="make a table of it: CREATE TABLE t AS SELECT * FROM " + source.uri,
                )
        faults.reach("sources prepared")
        for caution in join_warnings(checked.resolved):
            log.warning("%s (%s)", caution.message, caution.hint)
        kept = self._kept(plan) or (entry is not None and plan.target.kind == "emit")
        fresh = new and entry is not None
        self.runner.add(plan, sources, undo, ephemeral=not kept, new=new, fresh=fresh)
        if (start := self.adopted(plan)) is not None:
            self._begin_at(plan, start, undo)
        if new and entry is not None:
            self.declarations.keep(entry, plan.streams)
        else:
            self.columns.keep(plan.streams)
        faults.reach("pipeline added")

    def _begin_at(self, plan: PipelinePlan, start: Offset, undo: Undo) -> None:
        """Commits the first position of a statement, before the statement is stored: a kill in between leaves neither,
        so that it never begins elsewhere.
        """
        if self.store.position(plan.name) is not None:
            raise AlreadyExists(f'query "{plan.name}" has a position already', place=plan.place)
        undo.on_failure(partial(self.store.forget, plan.name))
        stream = plan.batch.stream.relation.name
        self.store.commit(position=Position(plan.name, "", 0, {stream: start}))
        faults.reach("adopted position kept")

    def _kept(self, plan: PipelinePlan) -> bool:
        if plan.target.kind == "table":
            return self.store.keeps(plan.target.name)
        saved = self.declarations.saved.get(f"query:{plan.name}")
        return plan.target.kind != "emit" or self.text.in_file or saved is not None
