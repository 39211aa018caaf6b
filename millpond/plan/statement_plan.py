"""Plans a statement by its kind. Execution, EXPLAIN and its picture use the same plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

from millpond.plan.load import plan_load
from millpond.plan.pipeline import plan_pipeline
from millpond.plan.plans import LoadPlan, StatementPlan, Target, ViewPlan, target_of
from millpond.plan.view import plan_view
from millpond.sql.checked import (
    Checked,
    CheckedInsert,
    CheckedRunnable,
    CheckedTableAs,
    CheckedView,
)


@overload
def plan_statement(
    checked: CheckedTableAs, name: str, target: Target
) -> StatementPlan | ViewPlan | LoadPlan: ...
@overload
def plan_statement(
    checked: CheckedRunnable, name: str, target: Target
) -> StatementPlan | ViewPlan | LoadPlan | None: ...
def plan_statement(
    checked: CheckedRunnable, name: str, target: Target
) -> StatementPlan | ViewPlan | LoadPlan | None:
    """Returns the plan of a statement that runs for as long as the app, or fills a table; None if it ends with its
    rows.
    """
    if checked.running:
        return plan_pipeline(checked, name, target)
    if checked.live:
        return plan_view(checked, name, target)
    return plan_load(checked, name, target) if isinstance(checked, CheckedTableAs) else None


def own_target(checked: CheckedRunnable) -> Target:
    """Returns where the rows of a statement go."""
    if checked.changes is None:
        return Target("emit", "")
    return target_of(checked.changes, checked.sink_options if isinstance(checked, CheckedInsert) else None)


@dataclass(frozen=True, slots=True)
class Planned:
    """Contains a statement with its plan, for EXPLAIN; without one it ends with its rows, or has no query."""

    checked: Checked
    plan: StatementPlan | ViewPlan | LoadPlan | None

    @staticmethod
    def of(checked: Checked) -> Planned:
        match checked:
            case CheckedRunnable():
                return Planned(checked, plan_statement(checked, "", own_target(checked)))
            case CheckedView(resolved=query) if checked.running:  # what a SELECT from it runs
                select = CheckedRunnable(checked.statement, query, checked.source_options)
                return Planned(checked, plan_pipeline(select, "", own_target(select)))
        return Planned(checked, None)
