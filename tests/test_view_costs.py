"""What each way to keep a view takes is learned from its last runs, and the cheaper one is taken."""

from __future__ import annotations

import time
from functools import partial

import pytest

from millpond import App
from millpond.views.costs import Costs, Learned, Watch


def _compute(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_the_least_of_the_last_runs_counts_within_bounds() -> None:
    learned = Learned()
    assert learned.factor == 1.0
    for microseconds in (200.0, 50_000.0):
        learned.learn(microseconds, expected=100.0)
    assert learned.factor == 2.0, "a run that waited for others is not believed"
    for _ in range(3):
        learned.learn(50_000.0, expected=100.0)
    assert learned.factor == 4.0
    learned.learn(1.0, expected=100.0)
    assert learned.factor == 0.25


def test_operators_are_given_the_rows_that_take_as_long_as_the_query() -> None:
    costs = Costs()
    whole = costs.whole(1_000_000, 1_000)
    before = costs.rows_for(whole)
    costs.learn_read(frozenset({"t"}), changed=1_000, read=2_000, seconds=2_000 * 2e-6)
    assert costs.rows_for(whole) == 2 * before, "a row took half of what was expected"
    costs.learn_read(frozenset({"t"}), changed=1, read=2, seconds=1.0)
    assert costs.rows_for(whole) == 2 * before, "nothing is learned from a few rows"
    assert costs.read(frozenset({"t"}), 100) == 200
    assert costs.read(frozenset({"d"}), 100) == 100


def test_a_slow_query_leaves_more_to_operators() -> None:
    costs = Costs()
    before = costs.whole(100, 10)
    with costs.learn_whole(100, 10):
        _compute(0.05)
    assert costs.whole(100, 10) > 3 * before


@pytest.mark.parametrize(("changed", "looked_up"), [(90, False), (2, True)])
def test_parts_are_found_by_index_only_if_they_are_few_of_the_rows(changed: int, looked_up: bool) -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY, g INT, f DOUBLE)") as app:
        app.table("t").bulk_insert([{"id": i, "g": i % 100, "f": 1.5} for i in range(20_000)])
        app.sql("CREATE TABLE v AS SELECT g, STDDEV(f) AS s FROM t GROUP BY g")
        (view,) = app._runtime.views
        view.by_changes.forget()
        app.table("t").bulk_insert([{"id": i, "g": i % 100, "f": 2.5} for i in range(changed)])
        app.drain()
        assert ("look up in table t" in {step.name for step in view.steps}) is looked_up


def test_what_parts_take_is_expected_from_the_whole_query() -> None:
    costs = Costs()
    before = costs.parts(100, 10)
    with costs.learn_whole(100_000_000, 0):
        pass
    assert costs.parts(100, 10) == before / 4
    with costs.learn_parts(100, 10):
        _compute(0.05)
    assert costs.parts(100, 10) > before


def test_a_way_that_once_took_long_is_tried_again_in_the_end() -> None:
    costs = Costs()
    whole = costs.whole(100, 10)
    expected = costs.rows_for(whole)
    costs.learn_read(frozenset({"t"}), changed=1_000, read=100_000, seconds=100.0)
    assert costs.rows_for(whole) == expected // 4 and costs.read(frozenset({"t"}), 10) == 1_000
    for _ in range(100):
        with costs.learn_whole(100_000_000, 0):
            pass
    assert costs.rows_for(whole) == expected and costs.read(frozenset({"t"}), 10) < 20


@pytest.mark.parametrize(("passed", "computed", "counted"), [(5.0, 1.0, 1.0), (1.0, 2.0, 1.0)])
def test_neither_waiting_nor_sharing_the_work_is_counted(
    monkeypatch: pytest.MonkeyPatch, passed: float, computed: float, counted: float
) -> None:
    now = {"perf_counter": 100.0, "process_time": 10.0}
    for name in now:
        monkeypatch.setattr(time, name, partial(now.__getitem__, name))
    watch = Watch()
    now["perf_counter"] += passed
    now["process_time"] += computed
    found = watch.seconds
    monkeypatch.undo()
    assert found == counted


def test_parts_that_were_too_many_are_not_looked_for_until_that_fades() -> None:
    costs, tables = Costs(), frozenset({"t"})
    assert costs.found(tables, 1_000) == 0, "what is not known is looked for"
    costs.learn_found(tables, most=1_000, found=900)
    assert 800 < costs.found(tables, 1_000) < 900
    assert costs.found(frozenset({"d"}), 1_000) == 0
    for _ in range(100):
        found = costs.found(tables, 1_000)
    assert found < 10
