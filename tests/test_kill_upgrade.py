"""SIGKILL at every step of an upgrade: the state directory is that of the old file, or of the new one.

This file is also the program that is killed.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from millpond import App
from millpond.testing.faults import at, killing
from tests.test_kill import running
from tests.test_upgrade import FILE, content, fill, opened

NEW = (
    FILE.replace("SUM(x)", "MAX(x)")
    .replace("b DECIMAL(5,2))", "b DECIMAL(9,3), c STRING DEFAULT 'z')")
    .replace("WHERE x > 0", "WHERE x > 1")
    .replace("CREATE STREAM unused (y INT);", "")
    .replace("CREATE TABLE empty (x INT) WITH ('hot.records' = 10);", "")
)
BEFORE = ("upgrade: planned", "journal: written")
AFTER = (
    "journal: committed",
    "upgrade: committed",
    "drop journalled",
    "replace: caught up",
    "replace: journalled",
)


@pytest.mark.slow
@pytest.mark.parametrize("point", (*BEFORE, *AFTER))
def test_either_the_old_file_or_the_new_one(point: str, tmp_path: Path) -> None:
    with opened(FILE, tmp_path / "state") as app:
        fill(app)
        before = content(app)
    with running(sys.executable, "-m", __name__, str(tmp_path / "state"), point) as process:
        _, err = process.communicate(timeout=100)
        assert process.returncode == -9, (point, err)
    if point in BEFORE:
        with opened(FILE, tmp_path / "state") as app:
            assert content(app) == before
    with opened(NEW, tmp_path / "state", upgrade=point in BEFORE) as app:
        found = content(app)
    with opened(NEW, tmp_path / "fresh") as app:
        app.sql("INSERT INTO t (id, a, b) VALUES (1, 2, 1.5), (2, 2, 2.5)")
        app.send("s", [{"id": 1, "x": 1}, {"id": 1, "x": 2}, {"id": 2, "x": -5}])
        assert found == content(app) != before


OLD = """
CREATE TABLE k (id INT);
CREATE TABLE gone (id INT);
CREATE STREAM s (id INT);
CREATE TABLE filled (id INT);
INSERT INTO filled SELECT id FROM s;
CREATE TABLE counted AS SELECT COUNT(*) AS n FROM k;
INSERT INTO gone VALUES (1);
"""
ONCE = (
    "CREATE TABLE k (id INT); CREATE STREAM s (id INT); INSERT INTO k VALUES (1); INSERT INTO k VALUES (2);"
)
OF_OLD = ("k", "gone", "filled", "counted")


@pytest.mark.slow
def test_what_is_dropped_is_there_until_the_file_has_run(tmp_path: Path) -> None:
    with opened(OLD, tmp_path) as app:
        app.send("s", {"id": 1})
        before = content(app, OF_OLD)
    with running(sys.executable, "-m", __name__, str(tmp_path), "rows found", ONCE) as process:
        _, err = process.communicate(timeout=100)
        assert process.returncode == -9, err
    with opened(OLD, tmp_path) as app:
        assert content(app, OF_OLD) == before
        app.send("s", {"id": 2})  # the query goes on from its position
        assert content(app, OF_OLD)["filled"] == ["{'id': 1}", "{'id': 2}"]
    with running(sys.executable, "-m", __name__, str(tmp_path), "drop journalled", ONCE) as process:
        _, err = process.communicate(timeout=100)
        assert process.returncode == -9, err
    with opened(ONCE, tmp_path) as app:
        assert content(app, OF_OLD) == {"k": ["{'id': 1}", "{'id': 2}"]}
    with opened(OLD, tmp_path) as app:  # it begins again
        assert content(app, OF_OLD) == {
            "k": ["{'id': 1}", "{'id': 2}"],
            "gone": ["{'id': 1}"],
            "filled": ["{'id': 1}", "{'id': 2}"],
            "counted": ["{'n': 2}"],
        }


def work(state: str, point: str, text: str = NEW) -> None:
    with ExitStack() as stack:
        if point.startswith("journal: "):  # of the commit of the upgrade
            stack.enter_context(at("upgrade: planned", lambda: stack.enter_context(killing(point))))
        else:
            stack.enter_context(killing(point))
        with App(text, state=state, _direct=True, upgrade=True) as app:
            app.drain()


if __name__ == "__main__":
    work(*sys.argv[1:])
