"""Random rows in random batches: what a live aggregate or window shows is what one query over the rows gives."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as some

from millpond import App
from millpond.plan.connectors import Connectors
from millpond.plan.pipeline import plan_pipeline
from millpond.plan.plans import PipelinePlan, Target
from millpond.query.evaluate import Answer, Evaluator
from millpond.sql.catalog import Catalog
from millpond.sql.check import Checker
from millpond.sql.checked import Checked, CheckedQuery, CheckedStream, CheckedTableAs
from millpond.sql.parse import parse
from millpond.sql.resolve import Resolved
from millpond.streaming.aggregate import LiveAggregate, target_changes
from millpond.streaming.window import WindowedAggregate
from millpond.tables.base import Backend, Snapshot
from millpond.tables.registry import find_backend
from millpond.types import Schema

pytestmark = pytest.mark.slow

COLUMNS = "k STRING, x INT, y DOUBLE, d DECIMAL(12,2), t STRING, ts TIMESTAMP"
NAMES = ("k", "x", "y", "d", "t", "ts")
ZERO = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
FUNCTIONS = """COUNT(*) AS c, SUM(x) AS s, AVG(d) AS a, MIN(t) AS mn, MAX(y) AS mx, STDDEV(x) AS sd, VAR_POP(y) AS vp,
  COVAR_POP(x, y) AS cp, CORR(x, y) AS co, FIRST(x) AS f, LAST(t) AS l, LAST(x) IGNORE NULLS AS li, MIN_BY(t, x) AS mb,
  bool_or(x > 3) AS bo, COUNT(DISTINCT x) AS dc, SUM(DISTINCT d) AS ds, COUNT(DISTINCT x, t) AS dp,
  SUM(x) FILTER (WHERE y > 1) AS sf, MEDIAN(x) AS me, PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY x) AS pd,
  COLLECT_LIST(x) AS cl, STRING_AGG(t, ',') AS sa, LISTAGG(t, '-') WITHIN GROUP (ORDER BY x DESC, t) AS la,
  STDDEV(DISTINCT x) AS dd"""

Row = tuple[Any, ...]


@cache
def checked(text: str) -> Checked:
    parsed = parse(text)
    checker = Checker(Catalog(), Connectors(), locate=parsed.script.place)
    last: Checked | None = None
    for statement in parsed.require():
        last = checker.check(statement)
        assert not checker.errors, checker.errors
    assert last is not None
    return last


@cache
def planned(query: str, watermark: str) -> tuple[PipelinePlan, Schema]:
    mark = f", WATERMARK FOR ts AS ts - INTERVAL {watermark}" if watermark else ""
    made = checked(f"CREATE STREAM s ({COLUMNS}{mark}); CREATE TABLE r AS {query}")
    assert isinstance(made, CheckedTableAs)
    return plan_pipeline(made, "q", Target("table", "r")), made.relation.schema


@cache
def merging(query: str, watermark: str, evaluator: Evaluator) -> LiveAggregate:
    """It holds nothing of its batches: one is enough."""
    aggregation = planned(query, watermark)[0].aggregation
    assert aggregation is not None
    kind = LiveAggregate if aggregation.window is None else WindowedAggregate
    return kind(aggregation, evaluator, "q")


_ANSWERS: dict[int, Answer] = {}


def answering(evaluator: Evaluator, query: Resolved) -> Answer:
    """What answers a query of a cached plan."""
    if id(query) not in _ANSWERS:
        answer = evaluator.in_process(query)
        assert answer is not None
        _ANSWERS[id(query)] = answer
    return _ANSWERS[id(query)]


@dataclass
class Tables:
    tables: dict[str, Backend] = field(default_factory=dict)

    def snapshot(self, table: str) -> Snapshot:
        return self.tables[table].snapshot()


class Live:
    """A live aggregate without a Spark query: batches are handed to it."""

    def __init__(self, query: str, evaluator: Evaluator, watermark: str = ""):
        self.plan, target = planned(query, watermark)
        self.evaluator = evaluator
        self.emitted: list[dict[str, Any]] = []
        self.tables = Tables()
        self.sent = 0
        self.aggregate = merging(query, watermark, evaluator)
        for name, schema in {**self.aggregate.tables, "r": target}.items():
            self.tables.tables[name] = find_backend("memory").open(name, schema, {}, null_keys=True)

    def batch(self, rows: Sequence[Row], *, again: bool = False) -> None:
        """With ``again`` the batch is merged once more before it counts."""
        stream = checked(f"CREATE STREAM s ({COLUMNS})")
        assert isinstance(stream, CheckedStream)
        schema = stream.relation.schema.arrow()
        table = pa.Table.from_pylist([dict(zip(NAMES, r, strict=True)) for r in rows], schema=schema)
        numbers = pa.array(range(self.sent, self.sent + len(rows)), pa.int64())
        self.sent += len(rows)
        came = {self.plan.batch.stream.view: table.append_column("_seq", numbers)}
        partial = answering(self.evaluator, self.plan.batch.query)(came).cast(self.plan.batch.output.arrow())
        high = None
        if self.plan.mark is not None:
            highest = answering(self.evaluator, self.plan.mark.query)(came)
            high = highest.column(0).cast(pa.int64())[0].as_py()
        merged = self.aggregate.merge(partial, self.tables, high)
        if again:
            merged = self.aggregate.merge(partial, self.tables, high)
        changes = {**merged.changes, "r": target_changes(merged, self.tables.snapshot("r"))}
        for name, change in changes.items():
            self.tables.tables[name].apply(change)
        self.emitted += merged.seen.to_pylist()

    def rows(self) -> list[dict[str, Any]]:
        return list(self.tables.tables["r"].scan().to_pylist())


def recomputed(evaluator: Evaluator, query: str, rows: Sequence[Row], more: str = "") -> list[dict[str, Any]]:
    """The same query over a table of the rows."""
    select = checked(f"CREATE TABLE s ({COLUMNS}{more}); {query}")
    assert isinstance(select, CheckedQuery)
    made = select.resolved
    schema = made.inputs[0].relation.schema.arrow()
    table = pa.Table.from_pylist([dict(zip(schema.names, r, strict=True)) for r in rows], schema=schema)
    return list(answering(evaluator, made)({made.inputs[0].view: table}).to_pylist())


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    def order(row: dict[str, Any]) -> str:
        return str({n: row[n] for n in row if n in ("k", "ws", "window_start", "c")})

    assert len(found) == len(wanted)
    for a, b in zip(sorted(found, key=order), sorted(wanted, key=order), strict=True):
        for name in b:
            assert _equal(a[name], b[name]), (name, a, b)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(b, float) and math.isnan(b):
        return a is None  # DuckDB's CORR where nothing varies
    return bool(a == b)


def rows_of(least: int, most: int) -> some.SearchStrategy[list[Row]]:
    return some.lists(
        some.tuples(
            some.sampled_from(["a", "b", None]),
            some.one_of(some.none(), some.integers(0, 5)),
            some.one_of(some.none(), some.integers(-8, 8).map(lambda v: v / 4)),
            some.one_of(some.none(), some.integers(-500, 500).map(lambda v: Decimal(v) / 100)),
            some.one_of(some.none(), some.sampled_from("pqr")),
            some.integers(0, 60_000).map(lambda ms: ZERO + dt.timedelta(milliseconds=ms)),
        ),
        min_size=least,
        max_size=most,
    )


def in_batches(rows: list[Row], sizes: list[int]) -> list[list[Row]]:
    """The rows cut into batches of these sizes, the last one the rest."""
    cut: list[list[Row]] = []
    for size in sizes:
        cut.append(rows[:size])
        rows = rows[size:]
    return [b for b in (*cut, rows) if b]


QUICK = (Phase.explicit, Phase.generate)
SIZES = some.lists(some.integers(1, 8), max_size=5)


@settings(max_examples=15, deadline=None, phases=QUICK)
@given(rows=rows_of(1, 25), sizes=SIZES, again=some.booleans())
def test_every_function_in_every_split(
    evaluator: Evaluator, rows: list[Row], sizes: list[int], again: bool
) -> None:
    query = f"SELECT k, {FUNCTIONS} FROM s GROUP BY k"
    live = Live(query, evaluator)
    for batch in in_batches(rows, sizes):
        live.batch(batch, again=again)
    same(live.rows(), recomputed(evaluator, query, rows))


@dataclass
class Model:
    """Windows by hand: which rows are in which window, batch by batch."""

    kind: str
    size: float
    slide: float
    delay: float | None
    drop: bool
    mark: float = -math.inf
    late: int = 0
    taken: list[tuple[Row, float]] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)

    def batch(self, rows: Sequence[Row]) -> None:
        for row in rows:
            for start in self._starts(_seconds(row)):
                if not self.drop or start + self.size > self.mark:
                    self._take(row, start)
                else:
                    self.late += 1
        if self.kind == "session":
            self._join()
        if self.delay is not None:
            self.mark = max(self.mark, max(_seconds(r) for r in rows) - self.delay)

    def _starts(self, at: float) -> list[float]:
        if self.kind == "session":
            return [at]
        last = math.floor(at / self.slide) * self.slide
        return [last - i * self.slide for i in range(10) if last - i * self.slide + self.size > at]

    def _take(self, row: Row, start: float) -> None:
        if self.kind == "session":
            self.sessions.append({"k": row[0], "first": start, "last": start, "rows": [row]})
        else:
            self.taken.append((row, start))

    def _join(self) -> None:
        """Sessions that are not closed, of one key, become one if no more than the gap lies between them."""
        closed = [s for s in self.sessions if self.drop and s["last"] + self.size <= self.mark]
        joined: list[dict[str, Any]] = []
        for session in sorted(
            (s for s in self.sessions if s not in closed), key=lambda s: (str(s["k"]), s["first"])
        ):
            before = joined[-1] if joined else None
            if (
                before is not None
                and before["k"] == session["k"]
                and session["first"] <= before["last"] + self.size
            ):
                before["last"] = max(before["last"], session["last"])
                before["rows"] = before["rows"] + session["rows"]
            else:
                joined.append(session)
        self.sessions = closed + joined

    def rows(self, sent: Sequence[Row], *, closed: bool = False) -> list[Row]:
        """Each row with the start of its window, in the order of the stream."""
        taken = list(self.taken)
        ends = {id(s): s["last"] + self.size for s in self.sessions}
        for s in self.sessions:
            if not closed or ends[id(s)] <= self.mark:
                taken += [(r, s["first"]) for r in s["rows"]]
        if closed and self.kind != "session":
            taken = [(r, start) for r, start in taken if start + self.size <= self.mark]
        place = {id(r): i for i, r in enumerate(sent)}
        taken.sort(key=lambda t: place[id(t[0])])
        return [(*r, ZERO + dt.timedelta(seconds=start)) for r, start in taken]


def _seconds(row: Row) -> float:
    return float((row[5] - ZERO).total_seconds())


WINDOWS = {
    "tumbling": ("WINDOW TUMBLING(10s)", 10.0, 10.0),
    "hopping": ("WINDOW HOPPING(10s, 4s)", 10.0, 4.0),
    "session": ("WINDOW SESSION(5s)", 5.0, 5.0),
}


@settings(max_examples=30, deadline=None, phases=QUICK)
@given(
    kind=some.sampled_from(sorted(WINDOWS)),
    way=some.sampled_from(["none", "within", "update", "drop", "final"]),
    rows=rows_of(1, 18),
    sizes=SIZES,
    again=some.booleans(),
)
def test_windows_in_every_split(
    evaluator: Evaluator, kind: str, way: str, rows: list[Row], sizes: list[int], again: bool
) -> None:
    clause, size, slide = WINDOWS[kind]
    rows = [tuple(r) for r in rows]
    delay = {"none": None, "within": 60.0}.get(way, 5.0)
    tail = " EMIT FINAL" if way == "final" else " WITH ('late' = 'update')" if way == "update" else ""
    query = f"SELECT k, window_start, {FUNCTIONS} FROM s GROUP BY k {clause}{tail}"
    live = Live(query, evaluator, f"{delay:g} SECONDS" if delay is not None else "")
    model = Model(kind, size, slide, delay, way in ("drop", "final"))
    for batch in in_batches(rows, sizes):
        live.batch(batch, again=again)
        model.batch(batch)
    wanted = recomputed(
        evaluator,
        f"SELECT k, ws AS window_start, {FUNCTIONS} FROM s GROUP BY k, ws",
        model.rows(rows, closed=way == "final"),
        ", ws TIMESTAMP",
    )
    same(live.rows(), wanted)
    if way == "final":
        same(live.emitted, wanted)
    if way in ("drop", "final"):
        assert live.tables.tables["q$watermark"].scan()["late"].to_pylist() == [model.late]
        assert all(end > model.mark for end in _ends(live, size, session=kind == "session"))


def _ends(live: Live, size: float, *, session: bool) -> list[float]:
    """When the windows end of which something is kept: none of them has closed."""
    assert live.plan.aggregation is not None and live.plan.aggregation.window is not None
    name = live.plan.aggregation.window.last if session else "k0"
    times = live.tables.tables["q$state"].scan()[name].to_pylist()
    return [(t - ZERO).total_seconds() + size for t in times]


def test_late_rows_are_counted_wherever_windows_go() -> None:
    windows = "SELECT window_start, COUNT(*) AS n FROM s WINDOW TUMBLING(60s) EMIT FINAL"
    sql = f"""
        CREATE STREAM s (x INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
        CREATE TABLE t (window_start TIMESTAMP PRIMARY KEY, n BIGINT);
        CREATE STREAM closed AS {windows};
        CREATE TABLE kept AS {windows};
        INSERT INTO t {windows} WITH ('query.name' = 'into');
        {windows} WITH ('query.name' = 'shown');
        INSERT INTO t SELECT ts, x FROM s WITH ('query.name' = 'rows');
    """
    with App(sql, _direct=True) as app:
        for times in (("00:00:10", "00:02:00"), ("00:00:20", "00:00:30", "00:02:01")):
            app.send("s", [{"x": 1, "ts": f"2024-01-01T{at}Z"} for at in times])
            app.drain()
        late = {q["name"]: q["late"] for q in app.sql("SHOW QUERIES").rows()}
        assert late == {"stream:closed": 2, "table:kept": 2, "into": 2, "shown": 2, "rows": None}
        for what in ("closed", "kept"):
            about = {r["property"]: r["value"] for r in app.sql(f"DESCRIBE EXTENDED {what}").rows()}
            assert about["late rows"] == "2" and about["watermark"].startswith("2024-01-01T00:01:56")
