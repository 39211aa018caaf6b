"""Derived streams that are replaced: they and what reads them are built beside the old ones, which are used until all
are swapped in one commit.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.app.app import runtime_of
from millpond.clock import ManualClock
from millpond.errors import Conflict, Error, InUse, StateForeign
from millpond.testing.crash import crash
from millpond.testing.faults import Injected, at, failing
from tests.test_upgrade import opened, rows_of

FILE = """
CREATE STREAM s (id INT, x INT);
CREATE STREAM d AS SELECT id, x * 2 AS x2 FROM s WHERE x > 0;
CREATE VIEW v AS SELECT id, x2 FROM d;
CREATE TABLE t (PRIMARY KEY (id)) AS SELECT id, SUM(x2) AS total FROM v GROUP BY id;
CREATE TABLE copy AS SELECT id, x2 FROM d;
CREATE STREAM e AS SELECT id, x2 + 1 AS y FROM d;
CREATE TABLE of_e AS SELECT id, MAX(y) AS y FROM e GROUP BY id;
CREATE TABLE pairs AS SELECT d.id, d.x2, t.total IS NULL AS missed FROM d LEFT JOIN t ON d.id = t.id;
CREATE MATERIALIZED VIEW sums AS SELECT COUNT(*) AS n, SUM(total) AS total FROM t;
CREATE TABLE apart AS SELECT id, x FROM s;
CREATE INDEX by_x2 ON copy (x2);
"""
NEW = FILE.replace("x * 2 AS x2 FROM s WHERE x > 0", "x * 3 AS x2 FROM s WHERE x > 1")
ANEW = "CREATE OR REPLACE STREAM d AS SELECT id, x * 3 AS x2 FROM s WHERE x > 1"
NAMES = ("t", "copy", "of_e", "sums", "apart")
CHAIN = ("d", "e", "t", "copy", "of_e", "pairs")


def send(app: App, first: int) -> None:
    app.send("s", [{"id": i % 3, "x": i - 2} for i in range(first, first + 10)])
    app.drain()


def content(app: App) -> dict[str, list[str]]:
    return {n: rows_of(app, n) for n in NAMES}


def fresh(text: str, *firsts: int) -> dict[str, list[str]]:
    with App(text, _direct=True) as app:
        for first in firsts:
            send(app, first)
        return content(app)


def pairs(app: App) -> list[tuple[int, int]]:
    """Returns the rows of the join without what it met: that depends on the order of two statements."""
    return sorted((r["id"], r["x2"]) for r in app.sql("SELECT * FROM pairs").rows())


def check_whole(app: App, text: str, *firsts: int) -> None:
    app.drain()
    assert content(app) == fresh(text, *firsts)
    assert pairs(app) == sorted((r["id"], r["x2"]) for r in app.sql("SELECT * FROM copy").rows())
    names = [r["name"] for kind in ("STREAMS", "TABLES", "QUERIES") for r in app.sql(f"SHOW {kind}").rows()]
    assert not [n for n in names if "$next" in n]


def explained(app: App, path: Path) -> dict[str, tuple[str, str]]:
    rows = app.sql(f"EXPLAIN UPGRADE '{path}'").rows()
    return {r["name"]: (r["action"], r["reason"]) for r in rows}


def test_a_stream_is_replaced_with_what_reads_it(tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        send(app, 0)
        before = runtime_of(app).journal.position("table:apart")
        (line, *_) = app.sql(f"EXPLAIN {ANEW}").rows()
        assert sorted(line["plan"].partition("with it: ")[2].strip(")").split(", ")) == sorted(CHAIN[1:])
        app.sql(ANEW)
        assert runtime_of(app).journal.position("table:apart") == before
        check_whole(app, NEW, 0)
        send(app, 10)
        check_whole(app, NEW, 0, 10)
        assert app.sql("SELECT COUNT(*) AS n FROM copy WHERE x2 = 21").rows() == [{"n": 1}]  # by its index
        crash(app)
    with opened(FILE, tmp_path) as app:  # the file still has the old statement
        send(app, 20)
        check_whole(app, NEW, 0, 10, 20)
    with opened(NEW, tmp_path) as app:
        send(app, 30)
        check_whole(app, NEW, 0, 10, 20, 30)


def test_the_old_ones_are_used_until_the_swap(tmp_path: Path) -> None:
    seen: list[dict[str, list[str]]] = []
    with opened(FILE, tmp_path) as app:
        send(app, 0)
    with opened(FILE, tmp_path) as app:

        def look() -> None:
            seen.append(content(app))
            app.send("s", [{"id": i % 3, "x": i - 2} for i in range(10, 20)])

        with at("replace: caught up", look, visit=len(CHAIN)):
            app.sql(ANEW)
        assert seen == [fresh(FILE, 0)]
        check_whole(app, NEW, 0, 10)


@pytest.mark.parametrize(
    ("point", "visit"),
    [("replace: begun", 1), ("replace: begun", 3), ("replace: caught up", 6), ("replace: stopped", 1)],
)
def test_a_failure_leaves_the_old_ones(point: str, visit: int, tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        send(app, 0)
        with failing(point, visit=visit), pytest.raises((Injected, Error)):
            app.sql(ANEW)
        check_whole(app, FILE, 0)
        send(app, 10)
        check_whole(app, FILE, 0, 10)
        app.sql(ANEW)
        check_whole(app, NEW, 0, 10)


def test_rows_that_fail_leave_the_old_ones(tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        send(app, 0)
        query = "SELECT id, 10 DIV (x - 3) AS x2 FROM s WITH ('on.error' = 'fail')"
        with pytest.raises(Error, match="by zero"):
            app.sql(f"CREATE OR REPLACE STREAM d AS {query.replace('10 DIV', 'CAST(10 AS BIGINT) DIV')}")
        check_whole(app, FILE, 0)


def test_an_upgrade_builds_a_stream_beside_the_old_one(tmp_path: Path) -> None:
    path, seen = tmp_path / "new.sql", list[Any]()
    path.write_text(NEW)
    with opened(FILE, tmp_path / "state") as app:
        send(app, 0)
        found = explained(app, path)
        assert "beside the old one, with what reads it" in found["d"][1]
        assert {n for n, (action, _) in found.items() if action == "rebuilt"} == {*CHAIN}
        assert found["sums"][0] == found["apart"][0] == "kept"
    point = at("replace: caught up", lambda: seen.append(content(app)), visit=len(CHAIN))
    with (
        failing("replace: stopped"),
        opened(NEW, tmp_path / "state", upgrade=True) as app,
        pytest.raises(Error),
    ):
        app.drain()  # waits for it
    with point, opened(NEW, tmp_path / "state") as app:  # it begins again
        app.drain()
    assert seen == [fresh(FILE, 0)]
    with opened(NEW, tmp_path / "state") as app:
        send(app, 20)
        check_whole(app, NEW, 0, 20)


MORE = "CREATE TABLE more AS SELECT id FROM d;"
BAD = "CREATE TABLE bad (reason STRING);"
IN_PLACE = [
    (FILE, f"{NEW}{MORE}"),  # it would begin with the old one
    (FILE, NEW.replace("AS x2 FROM s", "AS x2, x FROM s")),  # other columns, and a view reads it
    tuple(f"{BAD}{f}".replace("GROUP BY id;", "GROUP BY id ERROR INTO bad;", 1) for f in (FILE, NEW)),
]


@pytest.mark.parametrize(("old", "new"), IN_PLACE)
def test_what_cannot_be_built_beside_begins_again(old: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / "new.sql"
    path.write_text(new)
    with opened(old, tmp_path / "state") as app:
        send(app, 0)
        assert "begins again in its place" in explained(app, path)["d"][1]
    with opened(new, tmp_path / "state", upgrade=True) as app:
        check_whole(app, new, 0)


def test_statements_whose_rows_have_left_are_refused(tmp_path: Path) -> None:
    more = f"{FILE}CREATE TABLE target (id INT); INSERT INTO target SELECT id FROM e;"
    with opened(more, tmp_path) as app:
        send(app, 0)
        with pytest.raises(InUse, match='stream "e" is used by query "insert_target'):
            app.sql(ANEW)
        check_whole(app, FILE, 0)
    with pytest.raises(StateForeign, match="rows that would be there twice"):
        opened(more.replace("x * 2", "x * 3"), tmp_path, upgrade=True)


def test_running_selects_end(tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        send(app, 0)
        app.sql("SELECT id FROM d")
        app.drain()
        app.sql(ANEW)
        with pytest.raises(Conflict, match='stream "d" was replaced'):
            app.drain()
        (name,) = [q["name"] for q in app.sql("SHOW QUERIES").rows() if q["state"] == "failed"]
        app.sql(f"DROP QUERY `{name}`")
        check_whole(app, NEW, 0)


def test_a_stream_over_groups_and_paused_readers(tmp_path: Path) -> None:
    old = """CREATE STREAM s (id INT, x INT);
CREATE STREAM d AS SELECT id, x FROM s;
CREATE STREAM g AS SELECT id, COUNT(*) AS n FROM d GROUP BY id;
CREATE TABLE last (PRIMARY KEY (id)) AS SELECT id, n FROM g;
CREATE TABLE both AS SELECT a.id, a.x, b.x AS y FROM d a JOIN d b ON a.id = b.id AND a.x = b.x + 3;
"""
    new = old.replace("x FROM s", "x FROM s WHERE x > 3")

    def found(app: App) -> list[list[str]]:
        app.drain()
        return [rows_of(app, n) for n in ("last", "both")]

    with App(new, _direct=True) as app:
        for first in (0, 10, 20):
            send(app, first)
        expected = found(app)
    with opened(old, tmp_path) as app:
        send(app, 0)
        app.sql("PAUSE QUERY `table:last`")
        send(app, 10)
        app.sql("CREATE OR REPLACE STREAM d AS SELECT id, x FROM s WHERE x > 3")
        send(app, 20)
        crash(app)
    with opened(new, tmp_path) as app:
        assert {q["name"]: q["state"] for q in app.sql("SHOW QUERIES").rows()}["table:last"] == "paused"
        app.sql("RESUME QUERY `table:last`")
        assert found(app) == expected


def test_a_stream_that_is_being_replaced_is_dropped(tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        send(app, 0)
        with at("replace: caught up", lambda: app.sql("DROP TABLE pairs"), visit=2), pytest.raises(Conflict):
            app.sql(ANEW)
        app.drain()
        assert content(app) == fresh(FILE, 0)
        app.sql("DROP STREAM d CASCADE")
        assert not [r["name"] for r in app.sql("SHOW STREAMS").rows() if r["name"] != "s"]


@pytest.mark.parametrize(
    ("change", "visit", "why"),
    [
        ("CREATE OR REPLACE TABLE copy AS SELECT id, -x2 AS x2 FROM d", 1, "was changed|come to read"),
        ("DROP TABLE copy; CREATE TABLE copy AS SELECT id, -x2 AS x2 FROM d", 1, "was changed|come to read"),
        ("CREATE OR REPLACE VIEW w AS SELECT id, x + 1000 AS x2 FROM apart", len(CHAIN) + 1, "was changed"),
        ("CREATE TABLE more AS SELECT id FROM d", 1, "come to read"),
    ],
)
def test_what_changes_meanwhile_is_kept(change: str, visit: int, why: str) -> None:
    with App(FILE + JOINED, _direct=True) as app:
        send(app, 0)
        with (
            at("replace: caught up", lambda: app.sql(change), visit=visit),
            pytest.raises(Conflict, match=why),
        ):
            app.sql(ANEW)
        app.drain()
        old = fresh(FILE, 0)
        assert rows_of(app, "t") == old["t"]
        values = [r["x2"] for r in app.sql("SELECT x2 FROM copy").rows()]
        assert values and all((x < 0) == ("-x2" in change) for x in values)
        app.sql(ANEW)
        app.drain()
        assert rows_of(app, "t") == fresh(NEW, 0)["t"]


JOINED = """
CREATE VIEW w AS SELECT id, x AS x2 FROM apart;
CREATE TABLE met AS SELECT d.id, w.x2 FROM d JOIN w ON d.id = w.id;
"""


def test_readers_that_began_late_are_refused(tmp_path: Path) -> None:
    late = "CREATE TABLE late AS SELECT id FROM d WITH ('start' = 'latest');"
    with opened(FILE + late, tmp_path / "state") as app:
        send(app, 0)
        (tmp_path / "new.sql").write_text(NEW + late)
        found = explained(app, tmp_path / "new.sql")
        assert "only rows that come from now on" in found["late"][1] and "in its place" in found["d"][1]
        before = rows_of(app, "late")
        with pytest.raises(InUse, match='table "late", which has begun at the end'):
            app.sql(ANEW)
        assert rows_of(app, "late") == before
        check_whole(app, FILE, 0)


def test_retention_waits_for_the_readers(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    text = """CREATE STREAM s (id INT, x INT);
CREATE STREAM d WITH ('retention' = '1h') AS SELECT id, x FROM s;
CREATE TABLE copy AS SELECT id, x FROM d;
CREATE TABLE halves AS SELECT id, 10 DIV (x - 3) AS y FROM d;
"""

    def later() -> None:
        clock.advance(7200)
        runtime_of(app).old_rows.remove()

    with App(text, state=tmp_path, _clock=clock, _direct=True) as app:
        send(app, 0)
        before = rows_of(app, "copy")
        with at("replace: caught up", later):
            app.sql("CREATE OR REPLACE STREAM d WITH ('retention' = '1h') AS SELECT id, x + 0 AS x FROM s")
        app.drain()
        assert rows_of(app, "copy") == before
        assert app.sql("SELECT query, stream FROM halves$errors").rows() == [
            {"query": "table:halves", "stream": "d"}
        ]
        later()
        assert runtime_of(app).journal.stream_first("d") == 10  # by now it is too old


@pytest.mark.parametrize(
    ("change", "visit", "why"),
    [
        ("DROP STREAM d$next", 1, "was dropped"),
        ("DROP STREAM d$next CASCADE", 3, "was dropped"),
        ("DROP TABLE of_e$next", len(CHAIN), "was dropped"),
        ("CREATE TABLE spy AS SELECT * FROM d$next", 1, "is used by"),
        ("CREATE VIEW spy AS SELECT * FROM t$next", len(CHAIN), "is used by"),
    ],
)
def test_what_is_built_is_dropped_or_used(change: str, visit: int, why: str, tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        send(app, 0)
        with (
            at("replace: caught up", lambda: app.sql(change), visit=visit),
            pytest.raises((Conflict, InUse), match=why),
        ):
            app.sql(ANEW)
        send(app, 10)
        check_whole(app, FILE, 0, 10)
        crash(app)
    with opened(FILE, tmp_path) as app:
        send(app, 20)
        check_whole(app, FILE, 0, 10, 20)
