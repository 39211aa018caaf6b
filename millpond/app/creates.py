"""Runs CREATE STREAM, TABLE, VIEW and INDEX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millpond import faults
from millpond.app.declarations import Declarations
from millpond.app.handlers import NOTHING, Handlers
from millpond.app.indexes import Indexes
from millpond.app.launch import Launcher
from millpond.app.text_run import TextRun
from millpond.loading.capture_streams import CapturedStreams
from millpond.loading.load import TableLoads
from millpond.loading.loader import Loader
from millpond.plan.load import plan_load
from millpond.plan.pipeline import plan_pipeline
from millpond.plan.plans import Target
from millpond.plan.view import plan_view
from millpond.query.result import Result
from millpond.sql import statements as st
from millpond.sql.checked import Checked
from millpond.store.undo import Undo
from millpond.views.materialized_view import Views


@dataclass(frozen=True, eq=False, repr=False)
class Creates:
    """Creates what CREATE statements declare, and starts to fill it."""

    text: TextRun
    declarations: Declarations
    launcher: Launcher
    views: Views
    captured_streams: CapturedStreams
    table_loads: TableLoads
    loader: Loader
    indexes: Indexes
    with_types: Callable[[Checked], Checked]

    @property
    def handlers(self) -> Handlers:
        return {
            st.CreateStream: self.stream,
            st.CreateTable: self.table,
            st.CreateView: self.view,
            st.CreateIndex: self.index,
        }

    def stream(self, checked: Checked, undo: Undo) -> Result:
        assert isinstance(checked.statement, st.CreateStream) and checked.relation is not None
        relation = checked.relation
        entry = self.declarations.declare(checked, undo)
        if checked.resolved is not None:
            plan = plan_pipeline(checked, f"stream:{relation.name}", Target("stream", relation.name))
            self.launcher.start(plan, checked, undo, entry)
            return Result(NOTHING, count=0)
        self.declarations.keep(entry, (relation,))
        if checked.captured is not None:
            self.captured_streams.add(checked)
            faults.reach("stream tapped")
        return Result(NOTHING, count=0)

    def table(self, checked: Checked, undo: Undo) -> Result:
        assert checked.relation is not None
        checked = self.with_types(checked)
        assert checked.relation is not None
        name = checked.relation.name
        undo.on_failure(lambda: self.loader.end_loading(name))  # the last one: the table is gone by then
        self.loader.begin_loading(name)
        result = self._fill(checked, undo)
        self.loader.end_loading(name)
        return result

    def _fill(self, checked: Checked, undo: Undo) -> Result:
        assert checked.relation is not None
        entry = self.declarations.declare(checked, undo)
        name = f"table:{checked.relation.name}"
        target = Target("table", checked.relation.name)
        if checked.running:
            self.launcher.start(plan_pipeline(checked, name, target), checked, undo, entry)
            return Result(NOTHING, count=0)
        self.declarations.keep(entry, (checked.relation,))
        if checked.resolved is None:
            return Result(NOTHING, count=0)
        if checked.live:
            schema = checked.relation.schema
            return Result(NOTHING, count=self.views.add(plan_view(checked, name, target), schema))
        plan = plan_load(checked, name, target)
        if self.text.in_file and self.table_loads.is_from_outside(plan):
            self.loader.begin(plan, checked, undo=undo.take_back)
            return Result(NOTHING, count=0)
        return Result(NOTHING, count=self.table_loads.load(plan, checked))

    def view(self, checked: Checked, undo: Undo) -> Result:
        assert isinstance(checked.statement, st.CreateView) and checked.relation is not None
        if checked.statement.materialized:
            return self.table(checked, undo)
        self.declarations.keep(self.declarations.declare(checked, undo), (checked.relation,))
        return Result(NOTHING, count=0)

    def index(self, checked: Checked, undo: Undo) -> Result:
        self.indexes.create(checked, undo)
        return Result(NOTHING, count=0)
