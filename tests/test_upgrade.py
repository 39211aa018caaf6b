"""A changed file: what becomes of each statement of the state directory, and that it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.app.app import runtime_of
from millpond.errors import CheckFailed, Error, StateForeign, StateLocked, UpgradeNeeded
from millpond.testing.faults import at, failing

FILE = """
CREATE TABLE t (id INT PRIMARY KEY, a INT, b DECIMAL(5,2));
CREATE TABLE empty (x INT) WITH ('hot.records' = 10);
CREATE STREAM s (id INT, x INT);
CREATE STREAM unused (y INT);
CREATE STREAM d AS SELECT id, x * 2 AS x2 FROM s WHERE x > 0;
CREATE TABLE groups AS SELECT id, COUNT(*) AS n, SUM(x) AS total FROM s GROUP BY id;
CREATE TABLE copy AS SELECT id, x + 1 AS y FROM s;
CREATE TABLE of_d AS SELECT id, x2 FROM d;
CREATE VIEW v AS SELECT id, a FROM t;
CREATE TABLE live AS SELECT a, COUNT(*) AS n FROM v GROUP BY a;
CREATE INDEX by_a ON t (a);
CREATE TABLE into_me (id INT, x INT);
INSERT INTO into_me SELECT id, x FROM s;
"""
NAMES = ("t", "empty", "groups", "copy", "of_d", "v", "live", "into_me")


def opened(text: str, state: Path, **more: Any) -> App:
    return App(text, state=state, _direct=True, **more)


def fill(app: App) -> None:
    app.sql("INSERT INTO t VALUES (1, 2, 1.5), (2, 2, 2.5)")
    app.send("s", [{"id": 1, "x": 1}, {"id": 1, "x": 2}, {"id": 2, "x": -5}])
    app.drain()


def content(app: App, names: tuple[str, ...] = NAMES) -> dict[str, list[str]]:
    app.drain()
    known = [r["name"] for kind in ("TABLES", "STREAMS") for r in app.sql(f"SHOW {kind}").rows()]
    return {n: rows_of(app, n) for n in names if n in (*known, "v")}


def rows_of(app: App, name: str) -> list[str]:
    return sorted(map(str, app.sql(f"SELECT * FROM {name}").rows()))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, Path]]:
    folder = tmp_path_factory.mktemp("upgrade")
    with opened(FILE, folder / "state") as app:
        fill(app)
        app.sql("CREATE VIEW mine AS SELECT id FROM t")  # nobody's file has it
        yield app, folder / "new.sql"


def explained(app: App, path: Path, text: str) -> dict[str, tuple[str, str]]:
    path.write_text(text)
    rows = app.sql(f"EXPLAIN UPGRADE '{path}'").rows()
    return {str(r["name"]): (str(r["action"]), str(r["reason"])) for r in rows if r["action"] != "kept"}


CHANGES = [
    # the same meaning
    ("SELECT id, x + 1 AS y FROM s", "SELECT q.id, (q.x + 1) AS y FROM s AS q", {}),
    ("SELECT id, a FROM t", "SELECT u.id, u.a FROM t u", {}),
    ("id INT PRIMARY KEY, a INT, b DECIMAL(5,2)", "id INT, a INT, b DECIMAL(5,2), PRIMARY KEY (id)", {}),
    # altered
    ("b DECIMAL(5,2))", "b DECIMAL(5,2), c STRING DEFAULT 'z')", {"t": ("altered", 'column "c" is added')}),
    ("b DECIMAL(5,2))", "b DECIMAL(9,3))", {"t": ("altered", 'column "b" becomes DECIMAL(9,3)')}),
    (", b DECIMAL(5,2))", ")", {"t": ("altered", 'column "b" is dropped with its values')}),
    ("a INT, b", "a INT DEFAULT 7, b", {"t": ("altered", 'column "a" has another DEFAULT')}),
    (
        "SELECT id, a FROM t",
        "SELECT id, a FROM t WHERE id > 0",
        {"v": ("altered", ""), "live": ("rebuilt", "")},
    ),
    ("ON t (a)", "ON t (b)", {"by_a": ("altered", "it is made again")}),
    (
        "STREAM s (id INT, x INT)",
        "STREAM s (id INT, x INT) WITH ('retention' = '7d', 'batch.max.rows' = 10)",
        {"s": ("altered", "it has other options")},
    ),
    # a live aggregate that needs no more than its state
    ("SELECT id, COUNT(*) AS n, SUM(x) AS total", "SELECT id, SUM(x) AS total", {}),
    (
        "SELECT id, COUNT(*) AS n, SUM(x) AS total",
        "SELECT SUM(x) / COUNT(*) AS mean, id AS k, COUNT(*) + 1 AS n",
        {},
    ),
    ("FROM s GROUP BY id;", "FROM s GROUP BY id HAVING SUM(x) > 0;", {}),
    # rebuilt
    (
        "SUM(x) AS total FROM s",
        "SUM(x) AS total FROM s WHERE x > 0",
        {"groups": ("rebuilt", "its query is another")},
    ),
    (
        "COUNT(*) AS n, SUM(x)",
        "COUNT(DISTINCT x) AS n, SUM(x)",
        {"groups": ("rebuilt", "its query is another")},
    ),
    ("SUM(x) AS total", "MAX(x) AS total", {"groups": ("rebuilt", "its query is another")}),
    ("x + 1 AS y", "x + 1 AS z", {"copy": ("rebuilt", "its query is another")}),
    ("SELECT a, COUNT(*) AS n", "SELECT a, SUM(id) AS n", {"live": ("rebuilt", "its query is another")}),
    (
        "WHERE x > 0",
        "WHERE x > 1",
        {"d": ("rebuilt", "its query is another"), "of_d": ("rebuilt", 'it reads "d", which is rebuilt')},
    ),
    ("CREATE TABLE empty (x INT)", "CREATE TABLE empty (x DATE)", {"empty": ("rebuilt", "it has no rows")}),
    ("unused (y INT)", "unused (z STRING)", {"unused": ("rebuilt", "it has no rows")}),
    # dropped and new
    ("CREATE STREAM unused (y INT);", "", {"unused": ("dropped", "")}),
    ("CREATE TABLE live AS SELECT a, COUNT(*) AS n FROM v GROUP BY a;", "", {"live": ("dropped", "")}),
    ("INSERT INTO into_me SELECT id, x FROM s;", "", {"insert_into_me": ("dropped", "its rows stay")}),
    (
        "CREATE INDEX by_a ON t (a);",
        "CREATE TABLE fresh (x INT);",
        {"by_a": ("dropped", ""), "fresh": ("new", "")},
    ),
    # refused
    ("id INT PRIMARY KEY, a INT", "id INT, a INT PRIMARY KEY", {"t": ("refused", "its primary key changes")}),
    (
        "id INT PRIMARY KEY",
        "id BIGINT PRIMARY KEY",
        {"t": ("refused", "primary key changes from INT to BIGINT")},
    ),
    ("b DECIMAL(5,2)", "b INT", {"t": ("refused", "from DECIMAL(5,2) to INT")}),
    ("a INT, b", "b2 INT, a INT, b", {"t": ("refused", "another order")}),
    ("b DECIMAL(5,2))", "b DECIMAL(5,2), c INT NOT NULL)", {"t": ("refused", "NOT NULL")}),
    ("a INT, b", "a INT NOT NULL, b", {"t": ("refused", "NOT NULL")}),
    ("PRIMARY KEY, a INT, b", "PRIMARY KEY, b", {"v": ("refused", '"a"')}),
    ("(id INT, x INT);\nCREATE STREAM u", "(id INT, x BIGINT);\nCREATE STREAM u", {"s": ("refused", "rows")}),
    ("INTO into_me SELECT id, x", "INTO into_me SELECT id, x + 1", {"insert_into_me": ("refused", "twice")}),
    (
        "CREATE VIEW v AS",
        "CREATE STREAM v AS SELECT id, x AS a FROM s; CREATE VIEW w AS",
        {"v": ("refused", "stream")},
    ),
    (
        "CREATE TABLE copy AS SELECT id, x + 1 AS y FROM s",
        "CREATE TABLE copy (id INT)",
        {"copy": ("refused", "query")},
    ),
    ("TABLE t (", "TABLE tt (", {"v": ("refused", '"t"'), "t": ("dropped", ""), "tt": ("new", "")}),
    ("SELECT id, x2 FROM d", "SELECT id, nothing FROM d", None),
]


@pytest.mark.parametrize(("old", "new", "decisions"), CHANGES)
def test_decisions(
    old: str, new: str, decisions: dict[str, tuple[str, str]] | None, running: tuple[App, Path]
) -> None:
    app, path = running
    text = FILE.replace(old, new)
    assert text != FILE
    before = content(app)
    if decisions is None:  # an error of the file itself
        with pytest.raises((Error, CheckFailed)):
            explained(app, path, text)
        return
    found = explained(app, path, text)
    for name, (action, reason) in decisions.items():
        given = next((d for n, d in found.items() if n == name or n.startswith(f"{name}_")), None)
        assert given is not None and given[0] == action and reason in given[1], found
    if not decisions:
        assert not found
    if all(action == "altered" for action, _ in decisions.values()):
        assert {a for a, _ in found.values()} <= {"altered"}, found
    assert content(app) == before


def test_what_explain_says_of_rows(running: tuple[App, Path]) -> None:
    app, path = running
    path.write_text(FILE.replace("SUM(x)", "MAX(x)").replace("CREATE STREAM unused (y INT);", ""))
    rows = {r["name"]: r for r in app.sql(f"EXPLAIN UPGRADE '{path}'").rows()}
    assert (rows["groups"]["rows"], rows["groups"]["asks"]) == (3, True) and rows["groups"]["seconds"] >= 0
    assert (rows["unused"]["rows"], rows["unused"]["asks"]) == (0, True)
    assert rows["t"]["rows"] is None and not rows["t"]["asks"]
    with pytest.raises(Error, match="no file"):
        app.sql("EXPLAIN UPGRADE 'nowhere.sql'")
    path.write_text("CREATE TABLE of_another_app (x INT)")
    with pytest.raises(StateForeign, match="another app"):
        app.sql(f"EXPLAIN UPGRADE '{path}'")


DONE = [
    (
        "SELECT id, COUNT(*) AS n, SUM(x) AS total",
        "SELECT SUM(x) / COUNT(*) AS mean, id AS k, COUNT(*) + 1 AS n",
    ),
    ("FROM s GROUP BY id;", "FROM s GROUP BY id HAVING SUM(x) > 0;"),
    ("b DECIMAL(5,2))", "b DECIMAL(9,3), c STRING DEFAULT 'z')"),
    ("SUM(x) AS total", "MAX(x) AS total"),
    ("WHERE x > 0", "WHERE x > 1"),
    ("SELECT id, a FROM t", "SELECT id, a FROM t WHERE id > 1"),
    (
        "SELECT id, a FROM t;\nCREATE TABLE live AS SELECT a",
        "SELECT id, a + 1 AS k FROM t;\nCREATE TABLE live AS SELECT k AS a",
    ),
    ("x + 1 AS y FROM s", "x + 1 AS y, x FROM s"),
    ("CREATE TABLE of_d AS SELECT id, x2 FROM d;", ""),
    (
        "CREATE STREAM unused (y INT);",
        "CREATE STREAM unused (z STRING); CREATE TABLE of_unused AS SELECT * FROM unused;",
    ),
    ("CREATE TABLE empty (x INT) WITH ('hot.records' = 10);", "CREATE TABLE empty (x DATE, y INT);"),
    ("CREATE INDEX by_a ON t (a);", "CREATE INDEX by_a ON t (b);"),
]


@pytest.mark.parametrize(("old", "new"), DONE)
def test_it_becomes_what_a_fresh_run_gives(old: str, new: str, tmp_path: Path) -> None:
    text = FILE.replace(old, new)
    if "k AS a" in new:
        text = text.replace("FROM v GROUP BY a", "FROM v GROUP BY k")
    assert text != FILE
    with opened(FILE, tmp_path / "state") as app:
        fill(app)
    with opened(text, tmp_path / "state", upgrade=True) as app:
        found = content(app)
        app.send("s", {"id": 3, "x": 4})
        after = content(app)
    with opened(text, tmp_path / "fresh") as app:
        app.sql("INSERT INTO t (id, a, b) VALUES (1, 2, 1.5), (2, 2, 2.5)")
        app.send("s", [{"id": 1, "x": 1}, {"id": 1, "x": 2}, {"id": 2, "x": -5}])
        assert found == content(app)
        app.send("s", {"id": 3, "x": 4})
        assert after == content(app)
    with opened(text, tmp_path / "state") as app:  # nothing is left to do
        assert content(app) == after


def test_nothing_is_dropped_or_rebuilt_unasked(tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        fill(app)
        before = content(app)
    for text in (FILE.replace("SUM(x)", "MAX(x)"), FILE.replace("CREATE STREAM unused (y INT);", "")):
        with pytest.raises(UpgradeNeeded, match="dropped or rebuilt") as caught:
            opened(text, tmp_path)
        assert "upgrade=True" in (caught.value.hint or "")
    with pytest.raises(StateForeign, match="primary key"):
        opened(FILE.replace("id INT PRIMARY KEY, a INT", "id INT, a INT PRIMARY KEY"), tmp_path, upgrade=True)
    with pytest.raises(StateForeign, match="another app"):
        opened("CREATE TABLE of_another (x INT)", tmp_path, upgrade=True)
    with pytest.raises(Error, match="fails"):
        opened(FILE.replace("SUM(x)", "MAX(fails)"), tmp_path, upgrade=True)
    with opened(FILE, tmp_path) as app:
        assert content(app) == before
        with pytest.raises(StateLocked):
            opened(FILE.replace("SUM(x)", "MAX(x)"), tmp_path, upgrade=True)


def test_what_no_file_has_stays(tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        fill(app)
        app.sql("CREATE TABLE mine (x INT); INSERT INTO mine VALUES (1)")
        app.sql("CREATE TABLE mine_live AS SELECT SUM(b) AS b FROM t")
    with opened(FILE.replace("SUM(x)", "MAX(x)"), tmp_path, upgrade=True) as app:
        assert app.sql("SELECT * FROM mine").rows() == [{"x": 1}]
    with pytest.raises(StateForeign, match=r'mine_live.*"b"'):
        opened(FILE.replace("SUM(x)", "MAX(x)").replace(", b DECIMAL(5,2))", ")"), tmp_path, upgrade=True)


def test_both_a_dropped_table_and_what_reads_it(tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        fill(app)
    less = FILE.replace("CREATE STREAM d AS SELECT id, x * 2 AS x2 FROM s WHERE x > 0;", "")
    less = less.replace("CREATE TABLE of_d AS SELECT id, x2 FROM d;", "")
    with opened(less, tmp_path, upgrade=True) as app:
        assert {"d", "of_d"}.isdisjoint(content(app))
        assert not app._runtime.journal.stream_end("d")
    with opened(FILE, tmp_path) as app:  # it comes back
        assert len(content(app)["of_d"]) == 2


def test_an_alter_in_the_file(tmp_path: Path) -> None:
    altered = FILE + "ALTER TABLE t ADD COLUMN c INT;"
    with opened(altered, tmp_path) as app:
        fill_with = "INSERT INTO t VALUES (1, 2, 1.5, 4)"
        app.sql(fill_with)
    with pytest.raises(StateForeign, match="ALTER TABLE"):
        opened(altered.replace("b DECIMAL(5,2))", "b DECIMAL(9,2))"), tmp_path)
    with opened(FILE.replace("b DECIMAL(5,2))", "b DECIMAL(9,2), c INT)"), tmp_path) as app:
        assert [str(v) for v in app.sql("SELECT * FROM t").rows()[0].values()] == ["1", "2", "1.50", "4"]


def test_a_rebuilt_table_is_served_until_it_is_swapped(tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        fill(app)
        before = content(app)
    new, seen = FILE.replace("SUM(x)", "MAX(x)"), []
    with (
        opened(new, tmp_path, upgrade=True, _defer=True) as app,
        at("replace: caught up", lambda: seen.append(rows_of(app, "groups"))),
    ):
        runtime_of(app).start()
        after = content(app)
    assert seen == [before["groups"]] and after["groups"] != before["groups"]
    with failing("replace: begun"), opened(FILE, tmp_path, upgrade=True, _defer=True) as app:
        runtime_of(app).start()
        with pytest.raises(Error, match="replace: begun"):
            app.drain()
        assert rows_of(app, "groups") == after["groups"]
        (tmp_path / "new.sql").write_text(FILE)
        assert explained(app, tmp_path / "new.sql", FILE) == {"groups": ("rebuilt", "it is being rebuilt")}
    with opened(new, tmp_path) as app:  # the file says again what is there
        assert content(app) == after
    with opened(FILE, tmp_path, upgrade=True) as app:
        assert content(app) == before


def test_a_failure_leaves_the_old_state(tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        fill(app)
        before = content(app)
    new = FILE.replace("SUM(x)", "MAX(x)").replace("CREATE STREAM unused (y INT);", "")
    with failing("upgrade: planned"), pytest.raises(Exception, match="upgrade: planned"):
        opened(new, tmp_path, upgrade=True)
    with opened(FILE, tmp_path) as app:
        assert content(app) == before
    with failing("upgrade: committed"), pytest.raises(Exception, match="upgrade: committed"):
        opened(new, tmp_path, upgrade=True)
    with opened(new, tmp_path) as app:
        assert content(app) != before
        assert "MAX" in app.sql("SHOW CREATE TABLE groups").rows()[0]["statement"]
        assert "unused" not in [r["name"] for r in app.sql("SHOW STREAMS").rows()]
