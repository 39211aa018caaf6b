"""SIGKILL at every step of CREATE OR REPLACE: the table is the old one or the new one, with all rows, and goes on.

This file is also the program that is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from millpond import App
from millpond.app.app import runtime_of
from millpond.testing.faults import killing
from tests.test_kill import running

SQL = """
    CREATE STREAM e (id INT, k STRING, n INT);
    CREATE STREAM f (k STRING);
    CREATE TABLE t AS SELECT k, SUM(n) AS s FROM e GROUP BY k;
    CREATE TABLE joined AS SELECT f.k, t.s FROM f JOIN t ON t.k = f.k;
    CREATE VIEW named AS SELECT * FROM t;
    CREATE MATERIALIZED VIEW total AS SELECT SUM(s) AS s FROM t;
"""
NEW = "CREATE OR REPLACE TABLE t AS SELECT k, SUM(n * 10) AS s, COUNT(DISTINCT n) AS c FROM e GROUP BY k"
ROWS = [{"id": i, "k": "abc"[i % 3], "n": i} for i in range(30)]
OLD = ("replace: begun", "view added", "replace: caught up", "replace: stopped", "journal: written")
POINTS = (*OLD, "replace: journalled", "replace: shown")
CHANGES = {"view added": "CREATE OR REPLACE MATERIALIZED VIEW total AS SELECT MAX(s) AS s FROM t"}


def work(state: str, point: str) -> None:
    with App(SQL, state=state, _direct=True) as app:
        app.send("e", ROWS)
        app.send("f", [{"k": "a"}])
        app.drain()
        visit = 3 if point == "journal: written" else 1  # the entry of what is built, and its rows come first
        with killing(point, visit=visit):
            app.sql(CHANGES.get(point, NEW))


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_either_the_old_one_or_the_new_one(point: str, tmp_path: Path) -> None:
    with running(sys.executable, "-m", __name__, str(tmp_path), point) as process:
        _, err = process.communicate(timeout=100)
        assert process.returncode == -9, (point, err)
    for sent in (1, 2):
        with App(SQL, state=tmp_path, _direct=True) as app:
            assert not [n for n in runtime_of(app).journal.table_names() if "$next" in n]
            app.send("e", ROWS)
            app.drain()
            app.send("f", [{"k": "b"}])
            app.drain()
            found = {r["k"]: r["s"] for r in app.sql("SELECT * FROM t").rows()}
            factor = 1 if point in OLD else 10
            sums = {k: sum(r["n"] for r in ROWS if r["k"] == k) * factor * (sent + 1) for k in "abc"}  # type: ignore[misc]
            assert found == sums
            assert app.sql("SELECT s FROM total").rows() == [{"s": sum(sums.values())}]
            assert len(app.sql("SELECT * FROM joined").rows()) == 1 + sent
            assert len(app.sql("SELECT * FROM named").rows()[0]) == (2 if point in OLD else 3)


if __name__ == "__main__":
    work(*sys.argv[1:])
