"""Changes that touch many rows of a view: found by its query over the changed rows, equal to recomputing."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from millpond import App
from millpond.views import by_columns, kept_by_changes
from tests.random_views import bag
from tests.test_views_by_changes import follow

TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, g INT, n INT);
CREATE TABLE d (g INT PRIMARY KEY, name STRING, k INT);
CREATE TABLE log (g INT, n INT);
"""
ROWS, GROUPS = 6_000, 5
VIEWS = {
    "keyed": ("(PRIMARY KEY (id))", "SELECT t.id, t.n, d.name FROM t JOIN d ON t.g = d.g"),
    "plain": ("", "SELECT t.id, t.n, d.name FROM t JOIN d ON t.g = d.g WHERE t.n % 7 <> 0"),
    "double": ("", "SELECT t.n, d.name FROM t JOIN d ON t.g = d.g"),
    "outers": ("(PRIMARY KEY (id))", "SELECT t.id, d.name, d.k FROM t LEFT JOIN d ON t.g = d.g"),
    "moved": ("(PRIMARY KEY (x))", "SELECT t.id + d.k * 10000 AS x, d.name FROM t JOIN d ON t.g = d.g"),
    "filtered": (
        "(PRIMARY KEY (id))",
        "SELECT t.id, d.name, d.k, d.name AS again FROM t JOIN d ON t.g = d.g WHERE d.k < 2",
    ),
    "by_k": ("(PRIMARY KEY (id, k))", "SELECT t.id, d.k, d.name FROM t JOIN d ON t.g = d.g AND d.g <> t.n"),
    "rows": ("", "SELECT g + 1 AS h, n FROM log WHERE n > 1"),
}


def check(app: App) -> None:
    app.drain()
    for name, (_, query) in VIEWS.items():
        assert bag(app, f"SELECT * FROM {name}") == bag(app, query), name


def fill(app: App) -> None:
    keys = np.arange(GROUPS + 2, dtype=np.int32)
    app.table("d").bulk_insert(
        pa.table({"g": keys, "name": [f"n{i}" for i in keys], "k": np.zeros(len(keys), int)})
    )
    ids = np.arange(ROWS, dtype=np.int32)
    app.table("t").bulk_insert(pa.table({"id": ids, "g": ids % GROUPS, "n": ids % 50}))
    app.table("log").bulk_insert(pa.table({"g": ids % GROUPS, "n": ids % 9}))
    for name, (key, query) in VIEWS.items():
        app.sql(f"CREATE TABLE {name} {key} AS {query}")


@pytest.mark.parametrize("seed", range(2))
def test_changes_of_many_rows(seed: int) -> None:
    random = Random(seed)
    with App(TABLES, _direct=True) as app:
        fill(app)
        check(app)
        for step in range(10):
            g = random.randrange(GROUPS + 1)
            match random.randrange(6) if step else 0:
                case 0:
                    app.sql(f"UPDATE d SET name = '{step}' WHERE g = {g}")
                case 1:
                    app.sql(f"UPDATE d SET k = {random.randrange(3)}, name = NULL WHERE g = {g}")
                case 2:
                    app.sql(f"DELETE FROM d WHERE g = {g}")
                case 3:
                    app.sql(f"UPDATE t SET g = {g}, n = n + 1 WHERE id % 5 = {random.randrange(5)}")
                case 4:
                    app.sql(f"DELETE FROM log WHERE n = {random.randrange(9)}")
                case _:
                    app.sql(f"INSERT INTO log SELECT g, n + 1 FROM log WHERE n = {random.randrange(9)}")
                    app.sql(f"INSERT INTO d VALUES ({GROUPS + 10 + step}, 'x', 0)")
            check(app)


def test_a_dimension_is_found_by_columns() -> None:
    with App(TABLES, _direct=True) as app:
        fill(app)
        views = {view.plan.target.name: view for view in app._runtime.views}
        before = {name: view.by_changes.rounds for name, view in views.items()}
        app.sql("UPDATE d SET name = 'changed' WHERE g = 1")
        check(app)
        for name in ("keyed", "plain", "double", "moved"):
            assert views[name].by_changes.rounds == before[name] + 1
            assert any("evaluate over changed rows" in step for step in views[name].steps._steps), name


def test_columns_that_are_only_shown_need_one_evaluation() -> None:
    with App(TABLES, _direct=True) as app:
        fill(app)
        shown = {
            v.plan.target.name: {c for names in v.by_changes._columns._shown.values() for c in names}  # type: ignore[union-attr]
            for v in app._runtime.views
        }
        assert {name: columns & {"name", "k"} for name, columns in shown.items()} == {
            "keyed": {"name"},
            "plain": set(),
            "double": set(),
            "outers": {"name", "k"},
            "moved": {"name"},
            "filtered": {"name"},
            "by_k": {"name"},
            "rows": set(),
        }


def test_two_rows_with_one_key_are_the_error_of_the_query() -> None:
    with App(TABLES, _direct=True) as app:
        fill(app)
        query = "SELECT t.id DIV 5 + d.k * 1200 AS x FROM t JOIN d ON t.g = d.g WHERE d.g < 1 OR d.k > 0"
        app.sql(f"CREATE TABLE clash (PRIMARY KEY (x)) AS {query}")
        app.drain()
        app.sql("UPDATE d SET k = 1 WHERE g = 1")
        app.drain()
        rows = len(app.table("clash"))
        app.sql("UPDATE d SET k = 1 WHERE g = 2")
        with pytest.raises(Exception, match="several rows for the key"):
            app.drain()
        assert len(app.table("clash")) == rows


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_random_views_by_columns(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small changes of random views are found by columns too."""
    monkeypatch.setattr(kept_by_changes, "_FEW", 0)
    monkeypatch.setattr(by_columns, "_MOST", 1)
    follow(seed + 50, views=6, changes=10)
