"""Runs SELECT, SHOW, DESCRIBE and EXPLAIN."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from millpond.app.analyze import Analysis
from millpond.app.describe import Descriptions
from millpond.app.finite_queries import Answers
from millpond.plan.pipeline import plan_pipeline
from millpond.plan.plans import Target
from millpond.plan.view import plan_view
from millpond.query.change_kind import emitted_schema
from millpond.query.result import Result
from millpond.replace.or_replace import Replacements
from millpond.sql.checked import CheckedExplain, CheckedSelect
from millpond.sql.checked_commands import CheckedDescribe, CheckedHistory, CheckedShow, CheckedShowCreate
from millpond.statements.handlers import Handler, Handlers, WithTypes, handle
from millpond.statements.launch import Launcher
from millpond.statements.text_run import TextRun
from millpond.store.undo import Undo
from millpond.streaming.emitted_rows import Emitted
from millpond.views.materialized_view import Views


@dataclass(frozen=True, eq=False, repr=False)
class Reads:
    """Runs statements that read. ``run`` runs the statement of an EXPLAIN ANALYZE."""

    text: TextRun
    answers: Answers
    launcher: Launcher
    views: Views
    emitted: Emitted
    descriptions: Descriptions
    analysis: Analysis
    with_types: WithTypes
    replacements: Replacements
    run: Handler

    @property
    def handlers(self) -> Handlers:
        return dict(
            (
                handle(CheckedSelect, self.select),
                handle(CheckedShow, self.show),
                handle(CheckedDescribe, self.describe),
                handle(CheckedHistory, self.history),
                handle(CheckedShowCreate, self.show_create),
                handle(CheckedExplain, self.explain),
            )
        )

    def select(self, checked: CheckedSelect, undo: Undo) -> Result:
        if not checked.running and not checked.live:
            return Result(self.answers.answer(checked))
        checked = self.with_types(checked)
        name = self.launcher.name(checked, undo)
        result = self.emitted.open(name, emitted_schema(checked.resolved.schema.arrow(), checked.op))
        options = {} if checked.op is None else {"op": checked.op}
        if checked.live:
            printed = self.emitted.printed if self.text.in_file else None
            plan = plan_view(checked, name, Target("emit", f"{name}$rows", options))
            self.views.add_emitting(plan, result.add if printed is None else partial(printed, name))
            return result
        self.launcher.run_on(plan_pipeline(checked, name, Target("emit", name, options)), checked, undo)
        return result

    def show(self, checked: CheckedShow, undo: Undo) -> Result:
        return Result(self.descriptions.show(checked.statement.what))

    def describe(self, checked: CheckedDescribe, undo: Undo) -> Result:
        return Result(self.descriptions.describe(checked.relation, extended=checked.statement.extended))

    def history(self, checked: CheckedHistory, undo: Undo) -> Result:
        return Result(self.descriptions.history(checked.relation, checked.values))

    def show_create(self, checked: CheckedShowCreate, undo: Undo) -> Result:
        return Result(self.descriptions.show_create(checked.relation))

    def explain(self, checked: CheckedExplain, undo: Undo) -> Result:
        if not checked.statement.analyze:
            return Result(self.descriptions.explain(checked, self.replacements.explain(checked.inner)))
        return Result(self.analysis.analyze(checked, lambda inner: self.run(inner, undo)))
