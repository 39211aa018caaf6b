"""Views that are kept by changes: equal to their query after every commit, whatever the operators and changes are."""

from __future__ import annotations

import contextlib
import logging
from random import Random

import pyarrow as pa
import pytest

from millpond import App
from millpond.changes import ROW, Changes
from millpond.errors import Error, SqlError
from millpond.query.transaction import Transaction
from millpond.store.change_feed import Touched
from millpond.tables.memory import MemoryTable
from millpond.types import Column, Schema
from millpond.views.live_view import LiveView
from tests.random_schemas import Tables
from tests.random_views import TABLES, Views, bag, change, counted

pytestmark = pytest.mark.slow


def follow(seed: int, views: int, changes: int, *, schemas: bool = False) -> tuple[int, int]:
    """Makes random views and changes, compares after each commit; returns the rounds of all, and those by changes.
    ``schemas`` says that the tables are random, too.
    """
    random = Random(seed)
    schema = Tables(random, large=random.random() < 0.5) if schemas else None
    tables = TABLES if schema is None else schema.sql
    names = ("a", "b", "log", "c") if schema is None else tuple(schema.columns)

    def change_some(tx: Transaction | App) -> None:
        if schema is None:
            change(tx, random, large=True)
        else:
            with contextlib.suppress(Error):  # a value that does not fit
                schema.change(tx)

    made = [Views(random, large=True, tables=schema and schema.columns) for _ in range(views)]
    relations = [one.relation(3) for one in made]
    queries, keyed = [query for query, _ in relations], set[int]()
    with App(tables) as app:
        for i, (query, kinds) in enumerate(relations):
            # The first column is often NULL, so that the commit of the view is refused.
            first = next(iter(kinds))
            if kinds[first] == "int" and random.random() < 0.1:
                with contextlib.suppress(Error):  # a total is NULL at once
                    app.sql(f"CREATE TABLE v{i} (PRIMARY KEY ({first})) AS {query}")
                    keyed.add(i)
            if i not in keyed:
                app.sql(f"CREATE TABLE v{i} AS {query}")
        for step in range(changes):
            found = {view.plan.target.name: view for view in app._runtime.views}
            paused = [i for i in range(views) if random.random() < 0.05 and found[f"v{i}"].error is None]
            for i in paused:
                app.sql(f"PAUSE QUERY v{i}")
            if random.random() < 0.05:
                app.sql(f"TRUNCATE TABLE {random.choice(names)}")
            elif random.random() < 0.5:
                change_some(app)
            else:
                with app.begin_transaction() as tx:
                    for _ in range(random.randint(1, 4)):
                        change_some(tx)
            if paused:
                settle(app)
            for i in paused:
                app.sql(f"RESUME QUERY v{i}")
            settle(app)
            for i, query in enumerate(queries):
                check(app, found[f"v{i}"], query, made[i].ties, i in keyed, (seed, step, i))
        kept = [v for v in app._runtime.views if v.plan.by_changes.root is not None]
        return sum(v.rounds for v in kept), sum(v.by_changes.rounds for v in kept)


def settle(app: App) -> None:
    """Waits for the views; an error of one is compared with that of its query."""
    with contextlib.suppress(Error):
        app.drain()


def check(app: App, view: LiveView, query: str, ties: bool, keyed: bool, when: tuple[int, ...]) -> None:
    """Compares a view with its query: equal rows, or an error of both. Of rows that are equally first it shows those
    that its own order says.
    """
    if ties and view.plan.by_changes.root is None:
        return
    try:
        tables = {
            i.view: app.table(i.relation.name).backend.snapshot().scan() for i in view.plan.query.inputs
        }
        rows = (
            app._runtime.evaluator.answer(view.plan.query, tables).to_pylist()
            if ties
            else app.sql(query).rows()
        )
    except Error:
        assert view.error is not None, (when, query)
        return
    key = [next(iter(row.values())) for row in rows] if keyed else []
    if None in key or len(set(key)) < len(key):
        assert view.error is not None or None not in key, (when, query)
        return
    assert view.error is None, (when, query, view.error)
    seen = bag(app, f"SELECT * FROM {view.plan.target.name}")
    assert seen == counted(rows), (when, query)


@pytest.mark.parametrize("seed", range(4))
def test_random_views_are_what_their_queries_answer(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    rounds, by_changes = follow(seed, views=6, changes=10)
    assert by_changes > rounds * 0.4
    assert not unexpected(caplog)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_views_are_what_their_queries_answer(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    follow(seed, views=10, changes=30)
    assert not unexpected(caplog)


@pytest.mark.parametrize("seed", range(4))
def test_random_views_over_random_tables(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    follow(seed, views=6, changes=10, schemas=True)
    assert not unexpected(caplog)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(100, 200))
def test_many_random_views_over_random_tables(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    follow(seed, views=10, changes=30, schemas=True)
    assert not unexpected(caplog)


def unexpected(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Returns the warnings of operators that failed by something else than the values of rows."""
    return [r for r in caplog.records if r.levelno >= logging.WARNING and r.exc_info]


def plan_of(app: App, statement: str) -> list[str]:
    return [str(line) for line in app.sql(f"EXPLAIN {statement}").to_arrow()["plan"].to_pylist()]


def test_explain_shows_the_operators_and_what_is_recomputed() -> None:
    with App(TABLES) as app:
        lines = plan_of(app, "CREATE TABLE v AS SELECT g, SUM(n) AS s FROM a WHERE k > 1 GROUP BY g")
        assert any(line.startswith("follows its inputs: by changes") for line in lines)
        assert [line.strip().partition(":")[0] for line in lines if "operator" in line][1:] == [
            "operator groups",
            "operator columns",
            "operator filter and columns",
            "operator changes of table a",
        ]
        lines = plan_of(app, "CREATE TABLE v AS SELECT CORR(k, k) AS s FROM a")
        assert "not kept by changes: CORR over all rows" in lines


def test_explain_analyze_counts_rounds_and_state() -> None:
    text = "CREATE TABLE v AS SELECT g, COUNT(*) AS c FROM b GROUP BY g"
    with App(TABLES + text) as app:
        app.sql("INSERT INTO b VALUES (1, 1, 'x', 1), (2, 1, 'y', 1)")
        app.drain()
        lines = app.sql(f"EXPLAIN ANALYZE {text}").to_arrow()["plan"].to_pylist()
        assert any("1 rounds by changes, 2 entries" in str(line) for line in lines)


def test_incremental_refuses_what_is_recomputed() -> None:
    options = "WITH ('refresh' = 'incremental')"
    with App(TABLES) as app:
        with pytest.raises(SqlError, match="'incremental': CORR over all rows"):
            app.sql(f"CREATE TABLE v {options} AS SELECT CORR(k, k) AS s FROM a")
        with pytest.raises(SqlError, match="is for a table that follows tables"):
            app.sql(f"CREATE STREAM s (x INT); CREATE TABLE v {options} AS SELECT x FROM s")
        app.sql(f"CREATE TABLE v {options} AS SELECT k, COUNT(*) AS c FROM b GROUP BY k")
        app.sql("CREATE TABLE w WITH ('refresh' = 'full') AS SELECT k, COUNT(*) AS c FROM b GROUP BY k")
        app.table("b").bulk_insert([{"id": i, "k": i % 7, "g": "x", "x": i} for i in range(20_000)])
        app.drain()
        by_name = {view.plan.target.name: view for view in app._runtime.views}
        assert (by_name["v"].by_changes.rounds, by_name["w"].by_changes.rounds) == (1, 0)
        assert bag(app, "SELECT * FROM v") == bag(app, "SELECT * FROM w")


def test_many_changes_are_recomputed_and_few_are_not() -> None:
    with App(TABLES + "CREATE TABLE v AS SELECT k, COUNT(*) AS c, SUM(x) AS s FROM b GROUP BY k") as app:
        (view,) = app._runtime.views
        table = app.table("b")
        table.bulk_insert([{"id": i, "k": i % 7, "g": "x", "x": i} for i in range(20_000)])
        app.drain()
        assert view.by_changes.rounds == 0
        for n in range(3):
            table.update({"id": n}, {"k": 100 + n})
            app.drain()
        assert view.by_changes.rounds == 2  # the first sets the state
        assert bag(app, "SELECT * FROM v") == bag(app, "SELECT k, COUNT(*), SUM(x) FROM b GROUP BY k")


def test_a_change_of_what_only_a_regrouped_aggregate_reads() -> None:
    query = "SELECT g, MAX(k) AS k, SUM(f) AS s FROM a GROUP BY g"
    with App(f"{TABLES} CREATE TABLE v WITH ('refresh' = 'incremental') AS {query}") as app:
        app.sql("INSERT INTO a (id, k, g, f) VALUES (1, 1, 'x', 1.5D), (2, 1, 'x', 2.0D)")
        app.drain()
        app.sql("UPDATE a SET f = 4 WHERE id = 1")
        app.drain()
        assert bag(app, "SELECT * FROM v") == bag(app, query)
        assert next(iter(app._runtime.views)).by_changes.rounds == 2


def test_a_sum_that_is_too_large_is_the_error_of_the_query() -> None:
    with App(
        "CREATE TABLE t (id INT PRIMARY KEY, x BIGINT); CREATE TABLE v AS SELECT SUM(x) AS s FROM t"
    ) as app:
        app.table("t").insert({"id": 1, "x": 2**62})
        app.drain()
        app.table("t").insert({"id": 2, "x": 2**62})
        with pytest.raises(Error, match="out of the range"):
            app.drain()
        app.table("t").delete(id=1)
        app.drain()
        assert app.sql("SELECT s FROM v").rows() == [{"s": 2**62}]


def test_the_state_is_what_it_was_after_rows_come_and_go() -> None:
    sql = (
        "CREATE TABLE v AS SELECT g, COUNT(DISTINCT x) AS d, MIN(x) AS low FROM b GROUP BY g;"
        "CREATE TABLE w AS SELECT DISTINCT x FROM b"
    )
    with App(TABLES + sql) as app:
        table = app.table("b")
        table.insert({"id": 0, "k": 0, "g": "x", "x": 0})
        app.drain()
        sizes = [view.by_changes.size for view in app._runtime.views]
        for _ in range(3):
            table.bulk_insert([{"id": i, "k": 1, "g": f"g{i % 50}", "x": i} for i in range(1, 400)])
            app.drain()
            table.delete("id > 0")
            app.drain()
        assert [view.by_changes.size for view in app._runtime.views] == sizes == [3, 1]


def test_changes_of_a_table_without_a_key_are_net() -> None:
    table = MemoryTable(Schema((Column("x", pa.int32()),)))

    def change(touched: Touched, numbers: list[int | None], values: list[int], deleted: list[bool]) -> None:
        rows = pa.table({"x": pa.array(values, pa.int32()), ROW: pa.array(numbers, pa.int64())})
        changes = Changes(rows, pa.array(deleted))
        table.apply(changes)
        touched.add(changes)

    table.apply(Changes(pa.table({"x": pa.array([10, 11, 12], pa.int32())})))
    before, touched = table.snapshot(), Touched(table.schema)
    change(touched, [None, 1], [13, 21], [False, False])
    change(touched, [3, 0, 1], [0, 0, 31], [True, True, False])
    change(touched, [None], [14], [False])
    found = touched.between(before, table.snapshot())
    assert found is not None and not touched.only_added
    assert [t["x"].to_pylist() for t in found] == [[10, 11], [31, 14]]
    # What is the same before and after a compaction is not known by numbers alone.
    change(touched, [2], [0], [True])
    table.storage.compact(forced=True)
    assert touched.between(before, table.snapshot()) is None
