"""Running UPDATE, DELETE, MERGE and UPSERT against a model that applies one event after another.

No Spark: the batch stage and the fold are called as a pipeline calls them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as some

from millpond import App
from millpond.engine.local_stage import LocalStage
from millpond.errors import NotSupported, QueryFailed, SqlError, TypeMismatch
from millpond.plan.pipeline import plan_block, plan_pipeline
from millpond.plan.plans import target_of
from millpond.sql.blocks import grouped
from millpond.sql.checked import CheckedBlock, CheckedFold
from millpond.sql.parse import parse
from millpond.streaming import fold
from millpond.streaming.fold import FoldRunner
from tests.fold_cases import CASES, Event, Row, as_set, at_least

pytestmark = pytest.mark.slow

DECLARED = """
CREATE STREAM e (id INT, a INT, b INT);
CREATE STREAM log (id INT, x INT, a INT);
CREATE TABLE t (id INT PRIMARY KEY, x INT, y INT);
CREATE TABLE u (id INT, x INT, y INT);
CREATE TABLE other (id INT PRIMARY KEY, z INT);
INSERT INTO other VALUES (0, 1), (1, 2), (2, NULL);
"""


class Runner:
    """Applies batches of events as the pipeline of a statement does."""

    def __init__(self, app: App, sql: str):
        parsed = parse(sql)
        checked = app._runtime.checks.one(parsed.require()[0], parsed.script.place)
        assert isinstance(checked, CheckedFold)
        self.app = app
        plan = plan_pipeline(checked, "q", target_of(checked.fold.target))
        answer = app._runtime.evaluator.in_process(plan.batch.query)
        assert answer is not None
        self.plan, self.stage = plan, LocalStage(plan.batch, answer)
        self.folding = FoldRunner(checked.fold, app._runtime.evaluator, app._runtime.inputs.read)
        self.returned: list[Row] = []
        self.seq = 0

    def batch(self, events: Sequence[Event]) -> None:
        schema = self.plan.batch.stream.relation.schema.arrow()
        rows = pa.Table.from_pylist(list(events), schema=schema)
        rows = rows.append_column("_seq", pa.array(range(self.seq, self.seq + len(events)), pa.int64()))
        self.seq += len(events)
        found = self.stage.run(rows, self.app._runtime.store.snapshots())
        sent = self.app._runtime.store.write(
            lambda now: self.folding.find(found, now), into=(self.plan.target.name,)
        )
        if sent is not None:
            self.returned += sent.to_pylist()


def number(value: int | None) -> str:
    return "NULL" if value is None else str(value)


def fill(app: App, table: str, rows: Sequence[Row]) -> None:
    app.sql(f"TRUNCATE {table}")
    if rows:
        values = ", ".join(f"({number(r['id'])}, {number(r['x'])}, {number(r['y'])})" for r in rows)
        app.sql(f"INSERT INTO {table} VALUES {values}")


small = some.one_of(some.none(), some.integers(-1, 4))
events = some.lists(some.fixed_dictionaries({"id": some.integers(0, 4), "a": small, "b": small}), max_size=14)
keyed_rows = some.lists(
    some.fixed_dictionaries({"id": some.integers(0, 4), "x": small, "y": small}),
    max_size=5,
    unique_by=lambda r: r["id"],
)
cuts = some.lists(some.integers(0, 14), max_size=3)


def pieces(rows: Sequence[Event], at: Sequence[int]) -> Iterator[Sequence[Event]]:
    edges = sorted({0, len(rows), *(min(c, len(rows)) for c in at)})
    for start, end in itertools.pairwise(edges):
        yield rows[start:end]


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    with App(DECLARED) as app:
        yield app


@pytest.mark.parametrize("name", CASES)
def test_events_one_by_one(app: App, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "TURNS", 2)
    table, sql, model = CASES[name]
    run = Runner(app, sql)

    @settings(max_examples=20, deadline=None, phases=(Phase.generate, Phase.shrink))
    @given(before=keyed_rows, sent=events, at=cuts)
    def check(before: list[Row], sent: list[Event], at: list[int]) -> None:
        fill(app, table, before)
        run.returned.clear()
        expected, log = list(before), []
        for event in sent:
            expected = model(expected, event, log)
        for piece in pieces(sent, at):
            run.batch(piece)
        assert as_set(app.sql(f"SELECT id, x, y FROM {table}").rows()) == as_set(expected)
        if "RETURNING" in sql:
            assert as_set(run.returned) == as_set(log)

    check()


def test_many_events_of_one_row(app: App) -> None:
    """Their cost grows with their number, not with its square: far from a minute."""
    fill(app, "t", [{"id": 1, "x": 0, "y": 0}, {"id": 2, "x": 5, "y": 0}])
    many = [{"id": 1, "a": -1, "b": None}] * 10_000
    Runner(app, CASES["guarded"][1]).batch(many)
    Runner(app, CASES["merge by key"][1]).batch(many)
    assert app.sql("SELECT * FROM t WHERE id = 1").rows() == [{"id": 1, "x": 20_000, "y": 19_999}]


def test_decimals_are_exact_and_overflow_is_an_error(app: App) -> None:
    app.sql(
        "CREATE STREAM money (id INT, v DECIMAL(10,2)); CREATE TABLE sums (id INT PRIMARY KEY, s DECIMAL(12,2))"
    )
    app.sql("INSERT INTO sums VALUES (1, 0.00)")
    run = Runner(app, "UPDATE sums SET s = s + m.v FROM money m WHERE sums.id = m.id")
    run.batch([{"id": 1, "v": Decimal("0.10")}] * 1001)
    assert str(app.sql("SELECT s FROM sums").rows()[0]["s"]) == "100.10"
    fill(app, "t", [{"id": 1, "x": 2_147_483_000, "y": 0}, {"id": 2, "x": 1, "y": 0}])
    run = Runner(app, "UPDATE t SET x = x + e.a FROM e WHERE t.id = e.id")
    with pytest.raises(QueryFailed, match="overflow"):
        run.batch([{"id": 2, "a": 1, "b": 0}, {"id": 1, "a": 600, "b": 0}, {"id": 1, "a": 600, "b": 0}])
    assert {r["x"] for r in app.sql("SELECT x FROM t").rows()} == {2_147_483_000, 1}


def test_a_block_changes_all_its_tables_or_none(app: App) -> None:
    """Random transfers between two tables, cut into batches: what one statement changes the next one sees."""
    app.sql("CREATE TABLE total (id INT PRIMARY KEY, n INT)")
    block = grouped(
        parse(
            "BEGIN; UPDATE t SET x = x - e.a, y = y + 1 FROM e WHERE t.id = e.id AND t.x >= e.a;"
            "UPSERT INTO u SELECT e.id, t.x, t.y FROM e JOIN t ON t.id = e.id ON u.id = e.id;"
            "UPDATE total SET n = total.n + u.x FROM e JOIN u ON u.id = e.id WHERE total.id = 0; COMMIT"
        ).require()
    )[0]
    checked = app._runtime.checks.one(block, parse("").script.place)
    assert isinstance(checked, CheckedBlock)
    (run,) = app._runtime.statements.make(plan_block(checked, "b"), ephemeral=False)
    run.set_up()
    schema = pa.schema([("id", pa.int32()), ("a", pa.int32()), ("b", pa.int32()), ("_seq", pa.int64())])

    def batch(rows: Sequence[Row]) -> pa.Table:
        return pa.Table.from_pylist([{**r, "_seq": i} for i, r in enumerate(rows)], schema=schema)

    @settings(max_examples=20, deadline=None, phases=(Phase.generate, Phase.shrink))
    @given(sent=events, at=cuts)
    def check(sent: list[Event], at: list[int]) -> None:
        before = [{"id": n, "x": 5 * n, "y": 0} for n in range(3)]
        fill(app, "t", before)
        fill(app, "u", [])
        app.sql("INSERT INTO total VALUES (0, 0)")
        t = {r["id"]: r for r in (dict(r) for r in before)}
        u: dict[int, Row] = {}
        total = 0
        for piece in pieces(sent, at):
            run.commit(batch(piece), None)
            for e in piece:
                if e["id"] in t and at_least(t[e["id"]]["x"], e["a"]):
                    t[e["id"]] |= {"x": t[e["id"]]["x"] - e["a"], "y": t[e["id"]]["y"] + 1}
            u |= {e["id"]: dict(t[e["id"]]) for e in piece if e["id"] in t}
            total += sum(u[e["id"]]["x"] for e in piece if e["id"] in u)
        assert as_set(app.sql("SELECT id, x, y FROM t").rows()) == as_set(list(t.values()))
        assert as_set(app.sql("SELECT id, x, y FROM u").rows()) == as_set(list(u.values()))
        assert app.sql("SELECT n FROM total").rows() == [{"n": total}]

    check()
    app.sql("UPDATE total SET n = 2147483647")
    fill(app, "t", [{"id": 1, "x": 9, "y": 0}])
    with pytest.raises(QueryFailed, match="overflow"):
        run.commit(batch([{"id": 1, "a": 1, "b": 0}]), None)
    assert app.sql("SELECT x FROM t").rows() == [{"x": 9}]


@pytest.mark.parametrize(
    ("sql", "error", "part"),
    [
        (
            "UPDATE t SET x = o.id FROM e JOIN t o ON o.id = e.id WHERE t.id = e.id",
            NotSupported,
            "second time",
        ),
        (
            "UPDATE t SET x = (SELECT z FROM other WHERE id = t.x) FROM e WHERE t.id = e.id",
            NotSupported,
            "column that",
        ),
        ("UPDATE t SET x = e.a WHERE t.id = 1", SqlError, "SET … FROM e WHERE …"),
        ("UPDATE t SET x = 1 RETURNING t.x INTO log", SqlError, "a stream drives"),
        (
            "UPDATE t SET x = 1 FROM e WHERE t.id = e.id RETURNING t.x INTO log",
            TypeMismatch,
            '"x", "a" missing',
        ),
        ("UPDATE t SET x = 1 FROM e WHERE t.id = e.id RETURNING t.x INTO other", SqlError, "not a stream"),
        (
            "MERGE INTO t USING e ON t.id = e.id WHEN NOT MATCHED BY SOURCE THEN DELETE",
            NotSupported,
            "BY SOURCE has no meaning",
        ),
        ("UPDATE t SET x = 1 FROM (SELECT DISTINCT id FROM e) e WHERE t.id = e.id", NotSupported, "DISTINCT"),
    ],
)
def test_refused(app: App, sql: str, error: type[Exception], part: str) -> None:
    with pytest.raises(error) as caught:
        app.sql(sql)
    assert part in f"{caught.value} {caught.value.hint}"  # type: ignore[attr-defined]


def test_explain(app: App) -> None:
    lines = [r["plan"] for r in app.sql("EXPLAIN " + CASES["guarded"][1]).rows()]
    assert lines[0] == "UPDATE: runs for as long as the app"
    assert "apply: rows of t found by id = `e`.`id`" in lines
    assert (
        "apply: events one by one in stream order, folded for each row, when the batch is committed" in lines
    )
    assert any(
        x.startswith("apply: in process up to 10,000 rows and 16 MB, else by Spark, on its executors")
        for x in lines
    )
    assert "returning: a row for each applied event into stream log, in the same commit" in lines
    assert "target: table t, changed with the position in one commit: exactly once" in lines
    lines = [r["plan"] for r in app.sql("EXPLAIN " + CASES["merge by anything"][1]).rows()]
    assert "apply: in process, large batches too (all rows are folded together)" in lines
