"""Runs CREATE STREAM, TABLE, VIEW and INDEX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from millpond import faults
from millpond.loading.capture_streams import CapturedStreams
from millpond.loading.load import TableLoads
from millpond.loading.loader import Loader
from millpond.loading.stored_changes import StoredLogs
from millpond.plan.pipeline import plan_pipeline
from millpond.plan.plans import PipelinePlan, Target, ViewPlan
from millpond.plan.statement_plan import plan_statement
from millpond.query.column_defaults import check_defaults
from millpond.query.evaluate import Evaluator
from millpond.query.result import Result
from millpond.replace.or_replace import Replacements
from millpond.sql import statements as st
from millpond.sql.checked import (
    CheckedCapture,
    CheckedCreate,
    CheckedStream,
    CheckedStreamAs,
    CheckedTable,
    CheckedTableAs,
    CheckedView,
)
from millpond.sql.checked_commands import CheckedIndex
from millpond.statements.declarations import Declarations
from millpond.statements.handlers import NOTHING, Handlers, WithTypes, handle
from millpond.statements.indexes import Indexes
from millpond.statements.launch import Launcher
from millpond.statements.text_run import TextRun
from millpond.store.catalog import SavedRelation
from millpond.store.undo import Undo
from millpond.views.materialized_view import Views

C = TypeVar("C", bound=CheckedCreate)


@dataclass(frozen=True, eq=False, repr=False)
class Creates:
    """Creates what CREATE statements declare, and starts to fill it."""

    text: TextRun
    declarations: Declarations
    launcher: Launcher
    views: Views
    captured_streams: CapturedStreams
    stored_logs: StoredLogs
    table_loads: TableLoads
    loader: Loader
    indexes: Indexes
    with_types: WithTypes
    evaluator: Evaluator
    replacements: Replacements

    @property
    def handlers(self) -> Handlers:
        return dict(
            (
                handle(CheckedStream, self._created(self.stream)),
                handle(CheckedCapture, self._created(self.capture)),
                handle(CheckedStreamAs, self._created(self.stream_as)),
                handle(CheckedTable, self._created(self.table)),
                handle(CheckedTableAs, self._created(self.table)),
                handle(CheckedView, self._created(self.view)),
                handle(CheckedIndex, self.index),
            )
        )

    def _created(self, create: Callable[[C, Undo], Result]) -> Callable[[C, Undo], Result]:
        """Returns a handler that creates what is not there, and replaces what is: the checker has found OR REPLACE."""

        def run(checked: C, undo: Undo) -> Result:
            replacements = self.replacements
            return (
                create(checked, undo)
                if replacements.there(checked) is None
                else replacements.replace(checked, undo)
            )

        return run

    def stream(self, checked: CheckedStream, undo: Undo) -> Result:
        self.declarations.keep(self.declarations.declare(checked, undo), (checked.relation,))
        return Result(NOTHING, count=0)

    def capture(self, checked: CheckedCapture, undo: Undo) -> Result:
        result = self.stream(checked, undo)
        self.captured_streams.add(checked)
        faults.reach("stream tapped")
        return result

    def stream_as(self, checked: CheckedStreamAs, undo: Undo) -> Result:
        checked = self.with_types(checked)
        entry, name = self.declarations.declare(checked, undo), checked.relation.name
        plan = plan_pipeline(checked, f"stream:{name}", Target("stream", name))
        self.launcher.start(plan, checked, undo, entry)
        return Result(NOTHING, count=0)

    def table(self, checked: CheckedTable | CheckedTableAs, undo: Undo) -> Result:
        checked = self.with_types(checked)
        name = checked.relation.name
        if isinstance(checked, CheckedTable) and isinstance(checked.statement, st.CreateTable):
            check_defaults(checked.statement.columns, checked.relation.schema, self.evaluator)
        undo.on_failure(lambda: self.loader.end_loading(name))  # the last one: the table is gone by then
        self.loader.begin_loading(name)
        entry = self.declarations.declare(checked, undo)
        self.stored_logs.add(name)
        if isinstance(checked, CheckedTableAs):
            count = self._fill(checked, entry, undo)
        else:
            count = 0
            self.declarations.keep(entry, (checked.relation,))
        self.loader.end_loading(name)
        return Result(NOTHING, count=count)

    def _fill(self, checked: CheckedTableAs, entry: SavedRelation, undo: Undo) -> int:
        """Starts to fill a declared table; returns how many rows it has already."""
        name, target = f"table:{checked.relation.name}", Target("table", checked.relation.name)
        plan = plan_statement(checked, name, target)
        if isinstance(plan, PipelinePlan):
            self.launcher.start(plan, checked, undo, entry)
            return 0
        self.declarations.keep(entry, (checked.relation,))
        if isinstance(plan, ViewPlan):
            return self.views.add(plan, checked.relation.schema)
        if self.text.in_file and self.table_loads.is_from_outside(plan):
            self.loader.begin(plan, undo=undo.take_back)
            return 0
        return self.table_loads.load(plan)

    def view(self, checked: CheckedView, undo: Undo) -> Result:
        self.declarations.keep(self.declarations.declare(checked, undo), (checked.relation,))
        return Result(NOTHING, count=0)

    def index(self, checked: CheckedIndex, undo: Undo) -> Result:
        self.indexes.create(checked, undo)
        return Result(NOTHING, count=0)
