"""Random rows of several streams in random batches: a join gives what one query over the rows that were not late
gives, whichever stream is read first, and keeps no row that nothing can meet."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from millpond import App
from millpond.plan.connectors import Connectors
from millpond.plan.pipeline import plan_join
from millpond.plan.plans import JoinPlan
from millpond.query.evaluate import Evaluator
from millpond.sql.catalog import Catalog
from millpond.sql.check import Checker
from millpond.sql.parse import parse
from millpond.streaming.stream_join import JoinState
from millpond.tables.base import Backend, Snapshot
from millpond.tables.registry import find_backend
from millpond.testing.crash import crash

pytestmark = pytest.mark.slow

ZERO = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
END = 10_000
"""Seconds after which nothing can meet anything any more."""
DELAYS = (1, 0)
Row = tuple[int | None, int | None]
"""Key and seconds."""


@cache
def planned(kind: str, low: int, high: int, marked: bool) -> JoinPlan:
    marks = [f", WATERMARK FOR ts AS ts - INTERVAL {d} SECONDS" if marked else "" for d in DELAYS]
    text = f"""CREATE STREAM a (n INT, k INT, ts TIMESTAMP{marks[0]});
    CREATE STREAM b (n INT, k BIGINT, ts TIMESTAMP{marks[1]});
    SELECT a.n AS an, b.n AS bn FROM a {kind} JOIN b ON a.k = b.k AND {bound(low, high)}"""
    parsed = parse(text)
    checker = Checker(Catalog(), Connectors(), locate=parsed.script.place)
    found = [checker.check(statement) for statement in parsed.require()]
    assert not checker.errors, checker.errors
    assert found[-1] is not None and found[-1].resolved is not None
    plan = plan_join(found[-1].resolved)
    assert plan is not None
    return plan


def bound(low: int, high: int, left: str = "a", right: str = "b") -> str:
    return (
        f"{right}.ts BETWEEN {left}.ts + INTERVAL '{low}' SECONDS AND {left}.ts + INTERVAL '{high}' SECONDS"
    )


def at(seconds: int | None) -> dt.datetime | None:
    return None if seconds is None else ZERO + dt.timedelta(seconds=seconds)


@dataclass
class Tables:
    tables: dict[str, Backend] = field(default_factory=dict)

    def snapshot(self, table: str) -> Snapshot:
        return self.tables[table].snapshot()


class Joined:
    """A join without streams: batches are handed to it."""

    def __init__(self, plan: JoinPlan, evaluator: Evaluator):
        self.plan = plan
        self.join = JoinState(plan.join, evaluator, "q")
        self.tables = Tables()
        for name, schema in self.join.tables.items():
            self.tables.tables[name] = find_backend("memory").open(name, schema, {})
        self.sent = [0, 0]
        self.highest: list[int | None] = [None, None]
        self.on_time: tuple[list[tuple[int, Row]], list[tuple[int, Row]]] = ([], [])
        self.given: list[tuple[int | None, int | None]] = []
        self.numbers: list[int] = []

    def batch(self, side: int, rows: Sequence[Row]) -> None:
        mark = self.highest[side]
        numbered = list(enumerate(rows, self.sent[side]))
        self.sent[side] += len(rows)
        self.on_time[side].extend((n, r) for n, r in numbered if r[1] is None or mark is None or r[1] >= mark)
        names = "ab"[side]
        schema = self.plan.sides[side].batch.output.arrow()
        values = {
            f"{names}_n": [n for n, _ in numbered],
            f"{names}_k": [k for _, (k, _) in numbered],
            f"{names}_ts": [at(t) for _, (_, t) in numbered],
        }
        table = pa.table([pa.array(values[f.name], f.type) for f in schema], schema=schema)
        times = [t for _, t in rows if t is not None]
        reached = None
        if self.plan.join.sides[side].mark is not None and times:
            reached = max(times) - DELAYS[side]
            self.highest[side] = max(x for x in (reached, mark) if x is not None)
        micros = None if reached is None else int((at(reached) - at(0)).total_seconds()) * 1_000_000  # type: ignore[operator]
        start = int(ZERO.timestamp()) * 1_000_000
        taken = self.join.take(side, table, None if micros is None else start + micros, self.tables)
        for name, changes in taken.changes.items():
            self.tables.tables[name].apply(changes)
        self.given += zip(taken.joined["a_n"].to_pylist(), taken.joined["b_n"].to_pylist(), strict=True)
        self.numbers += taken.joined["_seq"].to_pylist()

    def kept(self, side: int) -> pa.Table:
        return self.tables.tables[f"q${('left', 'right')[side]}"].scan()


def recomputed(kind: str, low: int, high: int, *streams: Sequence[tuple[int, Row]]) -> Counter[Any]:
    connection = duckdb.connect(":memory:")
    try:
        for name, rows in zip("ab", streams, strict=True):
            columns = {
                "n": pa.array([n for n, _ in rows], pa.int64()),
                "k": pa.array([k for _, (k, _) in rows], pa.int64()),
                "ts": pa.array([at(t) for _, (_, t) in rows], pa.timestamp("us", "UTC")),
            }
            connection.register(name, pa.table(columns))
        sql = f"SELECT a.n, b.n FROM a {kind} JOIN b ON a.k = b.k AND {bound(low, high)}"
        return Counter(connection.sql(sql).fetchall())
    finally:
        connection.close()


KEYS = some.sampled_from([0, 0, 0, 1, 1, 1, None])
TIMES = some.sampled_from([*range(9), None])
ROWS = some.lists(some.tuples(KEYS, TIMES), max_size=5)
"""Few values, so that rows meet, and stand where a bound or a watermark ends."""
BATCHES = some.lists(some.tuples(some.integers(0, 1), ROWS), max_size=12)
BOUNDS = some.sampled_from([(0, 3), (-2, 2), (-4, 0), (1, 2)])


# At the very end of the bound, and of the watermark: the row is kept, and the one that comes is not late.
@example(batches=[(0, [(0, 0)]), (1, [(1, 3)]), (1, [(0, 3)])], kind="LEFT", limits=(0, 3))
@example(batches=[(1, [(0, 4)]), (0, [(1, 5)]), (0, [(0, 4)])], kind="RIGHT", limits=(0, 3))
@given(batches=BATCHES, kind=some.sampled_from(["", "LEFT", "RIGHT", "FULL"]), limits=BOUNDS)
@settings(max_examples=50, deadline=None)
def test_a_join_is_what_a_query_over_the_rows_that_are_not_late_gives(
    evaluator: Evaluator, batches: list[tuple[int, list[Row]]], kind: str, limits: tuple[int, int]
) -> None:
    low, high = limits
    joined = Joined(planned(kind, low, high, True), evaluator)
    for side, rows in batches:
        joined.batch(side, rows)
        for n, reach in ((0, high), (1, -low)):
            times = [t for t in joined.kept(n)["ab"[n] + "_ts"].to_pylist()]
            mark = joined.highest[1 - n]
            assert None not in times
            assert mark is None or all(t + dt.timedelta(seconds=reach) >= at(mark) for t in times)
    for side in (0, 1):
        joined.batch(side, [(None, END)])
    for side in (0, 1):
        joined.batch(side, [(None, 2 * END)])
        assert not joined.kept(1 - side).num_rows
    wanted = recomputed(kind, low, high, *joined.on_time)
    assert Counter(joined.given) == wanted
    assert joined.numbers == list(range(len(joined.numbers)))


@given(batches=BATCHES, limits=BOUNDS)
@settings(max_examples=15, deadline=None)
def test_without_watermarks_no_row_is_late(
    evaluator: Evaluator, batches: list[tuple[int, list[Row]]], limits: tuple[int, int]
) -> None:
    joined = Joined(planned("", *limits, False), evaluator)
    for side, rows in batches:
        joined.batch(side, rows)
    assert Counter(joined.given) == recomputed("", *limits, *joined.on_time)


THREE = f"""
CREATE STREAM a (n INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 100 SECONDS);
CREATE STREAM b (n INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 100 SECONDS);
CREATE STREAM c (n INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 100 SECONDS);
CREATE TABLE three AS SELECT a.n AS an, b.n AS bn, c.n AS cn FROM a LEFT JOIN b ON a.k = b.k AND {bound(-5, 10)}
FULL JOIN c ON c.k = a.k AND {bound(0, 20, "a", "c")};
CREATE TABLE counts AS SELECT a.k, COUNT(*) AS n, SUM(b.n) AS s FROM a JOIN b ON a.k = b.k AND {bound(-5, 10)}
GROUP BY a.k;
"""
STEPS = some.lists(
    some.one_of(some.tuples(some.sampled_from("abc"), ROWS), some.just(("crash", []))), max_size=8
)


@given(steps=STEPS)
@settings(max_examples=6, deadline=None)
def test_three_streams_across_crashes(steps: list[tuple[str, list[Row]]]) -> None:
    """No row is late here, so that it does not matter how a crash cuts the batches."""
    with TemporaryDirectory() as directory:
        state = Path(directory) / "state"
        app = App(THREE, state=state, _direct=True)
        rows: dict[str, list[dict[str, Any]]] = {"a": [], "b": [], "c": []}

        def send(name: str, some_rows: Sequence[Row]) -> None:
            made = [{"n": len(rows[name]) + i, "k": k, "ts": at(t)} for i, (k, t) in enumerate(some_rows)]
            rows[name] += made
            app.send(name, made)

        for name, some_rows in steps:
            if name == "crash":
                crash(app)
                app = App(THREE, state=state, _direct=True)
            else:
                send(name, some_rows)
                if len(some_rows) % 2:
                    app.drain()
        for after in (END, 2 * END, 3 * END):
            for name in "abc":
                send(name, [(None, after)])
            app.drain()
        found = Counter(tuple(r.values()) for r in app.sql("SELECT * FROM three").rows())
        counts = Counter(tuple(r.values()) for r in app.sql("SELECT * FROM counts").rows())
        left = app.sql("DESCRIBE EXTENDED three").rows()
        app.close()
    connection = duckdb.connect(":memory:")
    schema = pa.schema([("n", pa.int64()), ("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    for name, sent in rows.items():
        connection.register(name, pa.Table.from_pylist(sent, schema=schema))
    wanted = connection.sql(
        f"SELECT a.n, b.n, c.n FROM a LEFT JOIN b ON a.k = b.k AND {bound(-5, 10)} "
        f"FULL JOIN c ON c.k = a.k AND {bound(0, 20, 'a', 'c')}"
    ).fetchall()
    totals = connection.sql(
        f"SELECT a.k, COUNT(*), CAST(SUM(b.n) AS BIGINT) FROM a JOIN b ON a.k = b.k AND {bound(-5, 10)} GROUP BY a.k"
    ).fetchall()
    connection.close()
    assert found == Counter(wanted)
    assert counts == Counter(totals)
    assert {"property": "kept rows", "value": "0"} in left


@given(batches=BATCHES, kind=some.sampled_from(["", "LEFT"]), limits=BOUNDS)
@settings(max_examples=6, deadline=None)
def test_windows_above_a_join_close_once_with_all_their_rows(
    batches: list[tuple[int, list[Row]]], kind: str, limits: tuple[int, int]
) -> None:
    low, high = limits
    sql = "".join(
        f"CREATE STREAM {name} (n INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL {delay} SECONDS);"
        for name, delay in zip("ab", DELAYS, strict=True)
    )
    query = f"""SELECT unix_timestamp(window_start) AS s, COUNT(*) AS n FROM a {kind} JOIN b ON a.k = b.k
    AND {bound(low, high)} WINDOW TUMBLING(a.ts, 5s) EMIT FINAL"""
    streams: tuple[list[tuple[int, Row]], list[tuple[int, Row]]] = ([], [])
    marks = [-END, -END]
    with App(sql, _direct=True) as app:
        emitted = app.sql(query)
        for side, some_rows in [*batches, *((s, [(None, END)]) for s in (0, 1, 0, 1))]:
            app.send("ab"[side], [{"n": 0, "k": k, "ts": at(t)} for k, t in some_rows])
            app.drain()
            mark, times = marks[side], [t for _, t in some_rows if t is not None]
            good = [r for r in some_rows if r[1] is None or r[1] >= mark]
            streams[side].extend(enumerate(good, len(streams[side])))
            marks[side] = max([mark, *(t - DELAYS[side] for t in times)])
        found = {r["s"] - int(ZERO.timestamp()): r["n"] for r in emitted.rows()}
        assert len(found) == len(emitted.rows())
    wanted: Counter[int] = Counter()
    for (n, _), count in recomputed(kind, low, high, *streams).items():
        time = streams[0][n][1][1]
        if time is not None and time < END:
            wanted[time // 5 * 5] += count
    assert found == wanted
