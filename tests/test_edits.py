"""Single rows that several threads change: one commit for all that wait, each as if it were alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.errors import DuplicateKey, InvalidRecord

SQL = """
CREATE TABLE t (id INT PRIMARY KEY, n INT);
CREATE TABLE u (id INT PRIMARY KEY, n INT) WITH ('on.conflict' = 'error');
CREATE TABLE log (n INT);
CREATE TABLE tight (id INT PRIMARY KEY, n INT) WITH ('max_memory' = '100MB');
INSERT INTO t VALUES (1, 0), (2, 0), (3, 0), (4, 0);
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(SQL, state=tmp_path / "state") as app:
        yield app


def at_once(app: App, *calls: Callable[[], Any]) -> tuple[list[Any], int]:
    """Runs the calls in threads that all wait for their turn before the first one gets it; answers what they answer or
    raise, and how many commits that took."""
    answers: list[Any] = [None] * len(calls)

    def run(at: int) -> None:
        try:
            answers[at] = calls[at]()
        except Exception as error:
            answers[at] = type(error)

    store = app._runtime.store
    group = app._runtime.edits._group
    before = store.journal.last_commit()
    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(calls))]
    with store.writing:
        for number, thread in enumerate(threads, 1):
            thread.start()
            end = time.monotonic() + 30
            while len(group._waiting) < number and time.monotonic() < end:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    return answers, store.journal.last_commit() - before


def test_threads_share_a_commit(app: App, tmp_path: Path) -> None:
    t, log = app.table("t"), app.table("log")
    answers, commits = at_once(
        app,
        lambda: t.update({"id": 1}, {"n": 5}),
        lambda: t.insert({"id": 9, "n": 9}),
        lambda: t.delete(2),
        lambda: t.update({"id": 77}, {"n": 1}),
        lambda: log.insert({"n": 1}),
        lambda: log.insert({"n": 1}),
    )
    assert (answers, commits) == ([1, None, 1, 0, None, None], 1)
    expected = {1: 5, 3: 0, 4: 0, 9: 9}
    assert {r["id"]: r["n"] for r in t.all_rows()} == expected
    app.close()
    with App(SQL, state=tmp_path / "state") as again:
        assert {r["id"]: r["n"] for r in again.table("t").all_rows()} == expected
        assert again.table("log").all_rows() == [{"n": 1}, {"n": 1}]


def test_edits_of_one_row_follow_one_another(app: App) -> None:
    t = app.table("t")
    answers, commits = at_once(
        app,
        lambda: t.update({"id": 1}, {"n": 1}),
        lambda: t.delete(1),
        lambda: t.update({"id": 1}, {"n": 2}),
        lambda: t.insert({"id": 1, "n": 3}),
    )
    assert (answers, commits) == ([1, 1, 0, None], 3)
    assert t.get_record(1) == {"id": 1, "n": 3}


def test_a_mistake_harms_only_its_own(app: App) -> None:
    t, u = app.table("t"), app.table("u")
    answers, _ = at_once(
        app,
        lambda: t.update({"id": 1}, {"n": 6}),
        lambda: t.update({"id": 2}, {"nn": 6}),
        lambda: u.insert({"id": 1, "n": 1}),
        lambda: u.insert({"id": 1, "n": 2}),
        lambda: t.insert({"id": None, "n": 1}),
    )
    assert answers[0] == 1 and answers[2] is None
    assert answers[3] is DuplicateKey
    assert issubclass(answers[1], Exception) and issubclass(answers[4], Exception)
    assert t.get_record(1) == {"id": 1, "n": 6} and t.get_record(2) == {"id": 2, "n": 0}
    assert u.all_rows() == [{"id": 1, "n": 1}]


def test_a_journal_that_fails_fails_them_all_and_changes_nothing(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = app.table("t")

    def full(*_: Any, **__: Any) -> None:
        raise InvalidRecord("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(app._runtime.store.journal, "commit_rows", full)
        answers, _ = at_once(app, lambda: t.update({"id": 1}, {"n": 5}), lambda: t.insert({"id": 9, "n": 9}))
    assert answers == [InvalidRecord, InvalidRecord]
    assert sorted(r["n"] for r in t.all_rows()) == [0, 0, 0, 0]
    assert t.update({"id": 1}, {"n": 5}) == 1


def test_rows_that_move_while_others_wait(app: App) -> None:
    t, tight = app.table("t"), app.table("tight")
    backend = app._runtime.store.table("t")
    backend.storage.idle_dead = 0  # type: ignore[union-attr]
    tight.bulk_insert([{"id": n, "n": 0} for n in range(20)])
    for round_ in range(20):
        at_once(
            app,
            *(partial(t.update, {"id": k}, {"n": round_}) for k in (1, 2, 3, 4)),
            *(partial(tight.update, {"id": k}, {"n": round_}) for k in (1, 2)),
        )
        assert {r["n"] for r in t.all_rows()} == {round_}
        assert tight.get_record(1) == {"id": 1, "n": round_}
