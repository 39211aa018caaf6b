"""SIGKILL while a table is kept beside another one: both are as if nothing had happened.

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
from tests.test_shadow import FILE, NEW, check_difference, fresh, work
from tests.test_upgrade import opened, rows_of

BUILDING = (("shadow: begun", 1), ("shadow: kept", 2), ("replace: caught up", 1))
RUNNING = (("journal: written", 3),)
SWAPPING = (("replace: stopped", 1), ("replace: journalled", 1), ("replace: shown", 1))
DROPPING = (("drop journalled", 1),)
SWAPPED = ("replace: journalled", "replace: shown")


@pytest.mark.slow
@pytest.mark.parametrize("point", (*BUILDING, *RUNNING, *SWAPPING, *DROPPING))
def test_both_are_as_if_nothing_had_happened(point: tuple[str, int], tmp_path: Path) -> None:
    state, times = tmp_path / "state", 2
    with opened(FILE, state) as app:
        work(app, 0)
    if point not in BUILDING:
        with opened(NEW, state, shadow=True) as app:
            work(app, 1)
    with running(sys.executable, "-m", __name__, str(state), point[0], str(point[1])) as process:
        _, err = process.communicate(timeout=100)
        assert process.returncode == -9, (point, err)
    dropped = NEW.replace(" WHERE x > 0", "")  # what the state has when it is dropped
    with opened(dropped if point[0] == "drop journalled" else NEW, state) as app:
        app.drain()
        if point in BUILDING:
            work(app, 1)
        if point in RUNNING:  # of the killed one, the rows are there or not
            sent = len(app.sql("SELECT * FROM copy").rows())
            assert sent in (40, 60)
            if sent == 40:
                work(app, 2)
            else:
                app.sql("MERGE INTO k USING (SELECT 2 AS id, 0 AS a) n ON k.id = n.id"
                        " WHEN MATCHED THEN UPDATE SET a = n.a WHEN NOT MATCHED THEN INSERT *")  # fmt: skip
                app.drain()
            times = 3
        old, new = fresh(FILE, times, tmp_path / "old"), fresh(NEW, times, tmp_path / "new")
        swapped = point[0] in SWAPPED
        for table in ("t", "copy", "live"):
            there = f"{table}$next" in runtime_of(app).catalog
            assert there == (table != "t" or not (swapped or point[0] == "drop journalled"))
            assert rows_of(app, table) == (new if table == "t" and swapped else old)[table]
            if there:
                assert rows_of(app, f"{table}$next") == new[table]
                check_difference(app, table)
        if point[0] == "drop journalled":
            return
        if not swapped:
            app.sql("ALTER TABLE t SWAP WITH t$next")
            app.drain()
        assert {n: rows_of(app, n) for n in ("t", "v", "sums")} == {n: new[n] for n in ("t", "v", "sums")}


def die(state: str, point: str, visit: str) -> None:
    known = (point, int(visit))
    if known in BUILDING:
        with killing(point, visit=int(visit)), App(NEW, state=state, _direct=True, shadow=True) as app:
            app.drain()
        return
    with App(NEW, state=state, _direct=True) as app:
        app.drain()
        with killing(point, visit=int(visit)):
            if known in RUNNING:
                work(app, 2)
            app.sql("DROP TABLE t$next" if known in DROPPING else "ALTER TABLE t SWAP WITH t$next")


if __name__ == "__main__":
    die(*sys.argv[1:])
