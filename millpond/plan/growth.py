"""Tells, before a statement starts, which of its state grows: for ever over a stream, with its inputs over tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from millpond.errors import Caution
from millpond.plan.plans import target_of
from millpond.plan.view import plan_view
from millpond.plan.view_explain import growing_state
from millpond.sql.aggregate import Aggregation, is_live_aggregate, split
from millpond.sql.checked import Checked, CheckedBlock, CheckedExplain, CheckedQuery, CheckedTableAs
from millpond.sql.joins import join_warnings
from millpond.sql.windowing import Window


def growth_warnings(checked: Checked) -> Iterator[Caution]:
    """Warns about state of a statement that grows with the stream, and not only with its groups."""
    match checked:
        case CheckedExplain(inner=inner):
            yield from growth_warnings(inner)
        case CheckedBlock(members=members):
            for member in members:
                yield from growth_warnings(member)
        case CheckedQuery(resolved=query):
            yield from join_warnings(query)
            for caution in _of_aggregate(split(query)) if is_live_aggregate(query) else ():
                yield dataclasses.replace(caution, place=checked.statement.place)


def growth_notes(checked: Checked) -> Iterator[Caution]:
    """Tells what the state of a materialized view without a limit grows with; its inputs limit it."""
    match checked:
        case CheckedExplain(inner=inner):
            yield from growth_notes(inner)
        case CheckedTableAs() if checked.live and not checked.running:
            plan = plan_view(checked, "", target_of(checked.changes))
            grows = growing_state(plan)
            if grows and plan.state_limit is None:
                yield Caution(
                    f"the view has a state in memory, which grows with the {grows}",
                    hint="limit it: WITH ('state.max_memory' = '256MB'); EXPLAIN shows the operators that keep it",
                    place=checked.statement.place,
                )


def _of_aggregate(aggregation: Aggregation) -> Iterator[Caution]:
    if aggregation.window is not None:
        yield from _of_window(aggregation.window.window)
    elif aggregation.once:
        yield Caution(
            "DISTINCT over a stream keeps every row that it has given, for ever",
            hint="group by a window of time, or keep the rows in a table with a primary key",
        )
    elif aggregation.kept:
        yield Caution(
            "DISTINCT, MEDIAN, lists and the like keep the values of each group for ever",
            hint="group by a window of time, which lets them go when it closes",
        )


def _of_window(window: Window) -> Iterator[Caution]:
    if window.mark is None:
        yield Caution(
            "windows over a stream without a watermark never close: all of them are kept for ever",
            hint="declare it with the stream: WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS",
        )
    elif window.late == "update" and window.retention is None:
        yield Caution(
            "windows that late rows may change are kept for ever",
            hint="say how long: WITH ('late' = 'update', 'retention' = '1 day')",
        )
