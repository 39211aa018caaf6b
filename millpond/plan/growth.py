"""Warns, before a running statement starts, about state that it stores for ever."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from millpond.errors import Caution
from millpond.sql.aggregate import Aggregation, is_live_aggregate, split
from millpond.sql.checked import Checked, CheckedBlock, CheckedExplain, CheckedQuery
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
