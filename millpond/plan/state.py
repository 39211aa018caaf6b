"""What a running statement keeps beside its target, in words: what grows, and what bounds it."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.sql.aggregate import COUNT, SEQUENCE, Aggregation
from millpond.sql.nodes import seconds_text
from millpond.sql.windowing import Window


def explain_state(aggregation: Aggregation) -> Iterator[str]:
    groups = ", ".join(str(k) for k in aggregation.keys) or "all rows"
    values = len(aggregation.state) - len(aggregation.state.key)
    window = aggregation.window.window if aggregation.window is not None else None
    if window is not None:
        yield _window(window)
    bound = _bound(window) if window is not None else "it grows with the groups"
    yield f"state: {values} values for each group of {groups}; {bound}"
    for kept in aggregation.kept:
        columns = [c.name for c in kept.schema if c.name not in (*aggregation.state.key, COUNT, SEQUENCE)]
        what = "each distinct value" if len(columns) == 1 else f"each distinct {len(columns)} values"
        if SEQUENCE in kept.schema.names:
            what = "every value, with its place in the stream,"
        grows = f"; {_bound(window)}" if window is not None else ": it grows with the stream"
        read = "" if kept.fresh is not None else "; those of a group are read when a batch touches it"
        yield f"state: {what} of each group{grows}{read}"


def _window(window: Window) -> str:
    text = f"windows: {window.kind}, {_length(window.size)}"
    if window.kind == "hopping":
        text += f" every {_length(window.slide)}"
    if window.mark is None:
        return text + "; no watermark: none is late, none closes"
    late = "are left out and counted" if window.late == "drop" else "change the window"
    return text + f"; watermark {window.mark} - {_length(window.delay)}; late rows {late}"


def _bound(window: Window) -> str:
    if window.retention is not None:
        return f"a window leaves it {_length(window.retention)} after it closed"
    if window.mark is not None and window.late == "drop":
        return "a window leaves it when it closes"
    return "it grows with the windows"


def _length(micros: int) -> str:
    return f"{seconds_text(micros / 1_000_000)} s"
