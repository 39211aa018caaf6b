"""Describes in words what a running statement stores in addition to its target: what grows, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.engine_rule import Engine
from millpond.plan.plans import ChangesPlan, GroupsPlan, KeyedPlan, MissPlan, RowsPlan
from millpond.sql.aggregate import COUNT, SEQUENCE, Aggregation
from millpond.sql.catalog import Relation
from millpond.sql.joins import StreamJoin
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
            what = "every value, with its sequence number,"
        grows = f"; {_bound(window)}" if window is not None else ": it grows with the stream"
        read = "" if kept.fresh is not None else "; those of a group are read when a batch touches it"
        yield f"state: {what} of each group{grows}{read}"


def explain_join(join: StreamJoin, by: str) -> Iterator[str]:
    """Describes what a join of streams does with a batch of either side, and what it stores of both."""
    left, right = join.sides
    names = f"{left.stream.name} and {right.stream.name}"
    yield f"join stage: {join.kind} JOIN of {names}{' on ' + join.condition if join.condition else ''}, {by}"
    found = f" by {', '.join(f'{a} = {b}' for a, b in join.keys)}" if join.keys else ""
    yield (
        f"join stage: a batch of one side is joined with the stored rows of the other{found}; its result,"
        " its stored rows and its position are one commit"
    )
    for n, side in enumerate(join.sides):
        other = join.sides[1 - n]
        if join.bounded(n):
            assert other.mark is not None and side.reach is not None
            unmet = ", and is emitted then if it has no match" if side.outer else ""
            yield (
                f"state: each row of {side.stream.name} until the watermark of {other.stream.name}"
                f" ({other.mark.column} - {_length(other.mark.delay)}) is more than {_length(side.reach)}"
                f" past its {side.time}{unmet}; late rows of {other.stream.name} are dropped and counted"
            )
        else:
            why = (
                "without a time bound"
                if side.reach is None
                else f"without a watermark of {other.stream.name} for the time of the bound"
            )
            yield f"state: every row of {side.stream.name}: {why} it grows with the stream"


def explain_flushes(target: Relation, plan: object, engine: Engine, *, durable: bool) -> Iterator[str]:
    """Describes where rows are before they are in the store of a target, and who writes them there."""
    if target.flushed_by is None:
        return
    kept = "in the journal and in memory" if durable else "in memory"
    divided = durable and target.divides and not target.strict and _on_executors(plan, engine)
    too = "" if divided else ", large batches too"
    yield f"flush: rows are {kept} until a flush, which is written by {target.flushed_by}{too}"
    if divided:
        how = "merge" if target.schema.key else "append"
        yield (
            f"batches that Spark evaluates: its executors {how} them, past the journal, each in a commit of its own,"
            f" if they can and nothing follows the changes of {target.name}"
        )
    if isinstance(plan, GroupsPlan):
        yield f"state: {kept}, never in the store of {target.name}"


def _on_executors(plan: object, engine: Engine) -> bool:
    """Returns whether Spark may evaluate the batches of a plan, whose rows do not need one another."""
    if not isinstance(plan, RowsPlan) or isinstance(plan, ChangesPlan | KeyedPlan) or plan.join is not None:
        return False
    return plan.rule.in_app(engine).engine != "process"


def explain_misses(miss: MissPlan) -> list[str]:
    """Describes rows that wait for a match."""
    if miss.mode != "retry":
        return []
    tables, wait = " or ".join(miss.tables), f"{seconds_text(miss.timeout)} s"
    return [
        f"state: rows without a match in {tables} wait {wait} at the most, then 'on.miss' is {miss.fallback!r}"
    ]


def _window(window: Window) -> str:
    text = f"windows: {window.kind}, {_length(window.size)}"
    if window.kind == "hopping":
        text += f" every {_length(window.slide)}"
    if window.mark is None:
        return text + "; no watermark: none is late, none closes"
    late = "are dropped and counted" if window.late == "drop" else "change the window"
    return text + f"; watermark {window.mark} - {_length(window.delay)}; late rows {late}"


def _bound(window: Window) -> str:
    if window.retention is not None:
        return f"a window leaves it {_length(window.retention)} after it closed"
    if window.mark is not None and window.late == "drop":
        return "a window leaves it when it closes"
    return "it grows with the windows"


def _length(micros: int) -> str:
    return f"{seconds_text(micros / 1_000_000)} s"
