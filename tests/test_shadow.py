"""``--shadow``: what a changed file rebuilds stays beside the old tables, and a statement decides later."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.app.app import runtime_of
from millpond.errors import Conflict, Error, InUse, NotSupported, StateForeign, UpgradeNeeded
from tests.test_upgrade import opened, rows_of

FILE = """
CREATE STREAM s (id INT, x INT);
CREATE TABLE k (id INT PRIMARY KEY, a INT);
CREATE TABLE t AS SELECT id, COUNT(*) AS n, SUM(x) AS total FROM s GROUP BY id;
CREATE TABLE copy AS SELECT id, x FROM s;
CREATE TABLE live AS SELECT a, COUNT(*) AS n FROM k GROUP BY a;
CREATE VIEW v AS SELECT id, total FROM t;
CREATE MATERIALIZED VIEW sums AS SELECT SUM(total) AS total FROM t;
CREATE STREAM d AS SELECT id FROM s;
"""
NEW = (
    FILE.replace("SUM(x) AS total FROM s", "SUM(x) AS total FROM s WHERE x > 0")
    .replace("SELECT id, x FROM s", "SELECT id, x % 3 AS x FROM s")
    .replace("SELECT a, COUNT(*) AS n", "SELECT a, SUM(id + 10) AS n")
)
TABLES = ("t", "copy", "live", "v", "sums")


def work(app: App, seed: int) -> None:
    chosen = random.Random(seed)
    app.send("s", [{"id": chosen.randrange(4), "x": chosen.randrange(-5, 6)} for _ in range(20)])
    app.sql(f"MERGE INTO k USING (SELECT {seed} AS id, {seed % 2} AS a) n ON k.id = n.id"
            " WHEN MATCHED THEN UPDATE SET a = n.a WHEN NOT MATCHED THEN INSERT *")  # fmt: skip
    app.drain()


def fresh(text: str, times: int, folder: Path) -> dict[str, list[str]]:
    """Returns the tables of an app that has had the text from the beginning."""
    with opened(text, folder) as app:
        for seed in range(times):
            work(app, seed)
        return {name: rows_of(app, name) for name in TABLES}


def check_difference(app: App, table: str) -> None:
    def rows(name: str) -> Counter[str]:
        return Counter(str(r) for r in app.sql(f"SELECT * FROM {name}").rows())

    old, new = rows(table), rows(f"{table}$next")
    found: dict[str, Counter[str]] = {"old": Counter(), "new": Counter()}
    for row in app.sql(f"SELECT * FROM {table}$difference").rows():
        found[str(row.pop("only_in"))][str(row)] += 1
    assert found == {"old": old - new, "new": new - old}
    assert old != new


def test_both_go_on_until_they_are_swapped(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with opened(FILE, state) as app:
        work(app, 0)
    with opened(NEW, state, shadow=True) as app:
        work(app, 1)
        for table in ("t", "copy", "live"):
            check_difference(app, table)
        assert set(app.tables()) == {"t", "k", "copy", "live", "sums"}
    old, new = fresh(FILE, 4, tmp_path / "old"), fresh(NEW, 4, tmp_path / "new")
    with opened(NEW, state) as app:  # both continue; --shadow is not needed again
        work(app, 2)
        for table in ("t", "copy", "live"):
            check_difference(app, table)
        kept = {r["name"]: (r["action"], r["reason"]) for r in explained(app, NEW, tmp_path)}
        assert kept["t"] == ("kept", 'its new form is beside it, as "t$next"')
        app.sql("ALTER TABLE t SWAP WITH t$next")
        app.sql("ALTER TABLE live SWAP WITH live$next")
        app.sql("DROP TABLE copy$next")
        work(app, 3)
        assert {n: rows_of(app, n) for n in TABLES} == {**new, "copy": old["copy"]}
        assert not [e.name for e in runtime_of(app).journal.entries() if "$" in e.name]
        assert not [n for n in runtime_of(app).journal.table_names() if "$next" in n]
        for name in ("t$next", "t$difference", "copy$difference"):
            with pytest.raises(Error, match="is not known"):
                app.sql(f"SELECT * FROM {name}")
    with pytest.raises(UpgradeNeeded, match="rebuilt table copy"):
        opened(NEW, state)
    with opened(NEW.replace("x % 3 AS x", "x"), state) as app:  # as the state is
        assert {n: rows_of(app, n) for n in TABLES} == {**new, "copy": old["copy"]}


def explained(app: App, text: str, folder: Path) -> list[dict[str, Any]]:
    (folder / "new.sql").write_text(text)
    return app.sql(f"EXPLAIN UPGRADE '{folder / 'new.sql'}'").rows()


def test_another_file_removes_what_is_beside(tmp_path: Path) -> None:
    third = NEW.replace("WHERE x > 0", "WHERE x > 1")
    with opened(FILE, tmp_path / "state") as app:
        work(app, 0)
    with opened(NEW, tmp_path / "state", shadow=True) as app:
        work(app, 1)
    with opened(third, tmp_path / "state", shadow=True) as app:  # it is built again, by the new text
        work(app, 2)
        assert rows_of(app, "t$next") == fresh(third, 3, tmp_path / "third")["t"]
        check_difference(app, "t")
        check_difference(app, "copy")
    with opened(FILE, tmp_path / "state") as app:  # the old file again: nothing was lost
        work(app, 3)
        assert {n: rows_of(app, n) for n in TABLES} == fresh(FILE, 4, tmp_path / "old")
        assert not [e.name for e in runtime_of(app).journal.entries() if "$" in e.name]
        assert not [n for n in runtime_of(app).journal.table_names() if "$next" in n]


def test_what_is_refused(tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        work(app, 0)
        with pytest.raises(Error, match='"t\\$next" was not built beside table "t"'):
            app.sql("ALTER TABLE t SWAP WITH t$next")
    with pytest.raises(StateForeign, match="cannot be built beside the old one"):
        opened(FILE.replace("SELECT id FROM s", "SELECT id + 1 AS id FROM s"), tmp_path, shadow=True)
    with opened(NEW, tmp_path, shadow=True) as app:
        app.drain()
        with pytest.raises(Error, match="was not built beside"):
            app.sql("ALTER TABLE t SWAP WITH copy$next")
        with pytest.raises(InUse, match='has "t\\$next" beside it'):
            app.sql(
                "CREATE OR REPLACE TABLE t AS SELECT id, COUNT(*) AS n, MAX(x) AS total FROM s GROUP BY id"
            )
        app.sql("CREATE MATERIALIZED VIEW differs AS SELECT COUNT(*) AS n FROM t$difference")
        app.drain()
        assert app.sql("SELECT * FROM differs").rows() != [{"n": 0}]
        for statement in ("ALTER TABLE t SWAP WITH t$next", "DROP TABLE t$next"):
            with pytest.raises(InUse, match='used by table "differs"'):
                app.sql(statement)
        with pytest.raises(Error, match='has the indexes of "t" when it replaces it'):
            app.sql("CREATE INDEX i ON t$next (total)")
        for statement in ("INSERT INTO t$next VALUES (9, 9, 9)", "DELETE FROM t$next"):
            with pytest.raises(Error, match="query"):
                app.sql(statement)
        with pytest.raises(Error, match="cannot be the name"):
            app.sql("CREATE VIEW x$difference AS SELECT 1 AS a")
        app.sql("DROP TABLE differs")
        app.sql("DROP VIEW v; DROP TABLE sums")
        app.sql("DROP TABLE t")  # with what is beside it
        assert not [e.name for e in runtime_of(app).journal.entries() if e.name.startswith("t$")]
    with pytest.raises(NotSupported, match="not for its file"):
        opened(NEW + "ALTER TABLE copy SWAP WITH copy$next;", tmp_path)


def test_one_that_is_paused_or_read(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with opened(FILE, state) as app:
        work(app, 0)
        (tmp_path / "d.sql").write_text(FILE.replace("SELECT id FROM s", "SELECT id + 1 AS id FROM s"))
        shown = app.sql(f"EXPLAIN SHADOW UPGRADE '{tmp_path / 'd.sql'}'").rows()
        assert {r["action"] for r in shown if "cannot be built beside" in r["reason"]} == {"refused"}
    with opened(NEW, state, shadow=True) as app:
        work(app, 1)
        app.sql("PAUSE QUERY `table:t$next`")
        app.sql("CREATE VIEW mine AS SELECT * FROM t$difference")
    with opened(NEW, state) as app:
        app.drain(timeout=60)  # does not wait for it
        with pytest.raises(InUse, match='used by view "mine"'):
            app.sql("ALTER TABLE t SWAP WITH t$next")
    with pytest.raises(StateForeign, match="difference") as refused:
        opened(FILE, state)
    assert "it is in no file: start with the file as it was, and DROP VIEW mine" in str(refused.value)
    with opened(NEW, state) as app:
        app.sql("DROP VIEW mine")
        with pytest.raises(Conflict, match="is paused: it does not catch up") as paused:
            app.sql("ALTER TABLE t SWAP WITH t$next")
        assert "RESUME QUERY `table:t$next` first" in str(paused.value)
        app.sql("RESUME QUERY `table:t$next`")
        app.sql("ALTER TABLE t SWAP WITH t$next")
        assert rows_of(app, "t") == fresh(NEW, 2, tmp_path / "new")["t"]


def test_a_column_more_and_less(tmp_path: Path) -> None:
    old = "CREATE STREAM s (id INT, x INT);"
    old += "CREATE TABLE t AS SELECT id, SUM(x) AS total, COUNT(*) AS n FROM s GROUP BY id;"
    new = old.replace("COUNT(*) AS n", "MAX(x) AS most")
    with opened(old, tmp_path) as app:
        app.send("s", [{"id": 1, "x": 1}])
        app.drain()
    with opened(new, tmp_path, shadow=True) as app:
        app.drain()
        assert app.sql("SELECT * FROM t$difference").rows() == []  # equal in the columns of both
        assert app.sql("SELECT * FROM t$next").rows() == [{"id": 1, "total": 1, "most": 1}]
        app.sql("ALTER TABLE t SWAP WITH t$next")
        assert app.sql("SELECT * FROM t").rows() == [{"id": 1, "total": 1, "most": 1}]


@pytest.mark.parametrize("condition", ["x = '${TOWN}'", "x > CAST(${NUMBER} AS STRING)"])
def test_other_values_of_variables(condition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old table would have them too: so they cannot be compared, and are noticed while both are there."""
    old = f"CREATE STREAM s (x STRING); CREATE TABLE t AS SELECT x, COUNT(*) AS n FROM s WHERE {condition} GROUP BY x;"
    new = old.replace("WHERE", "WHERE x <> 'Kiel' AND x <> '15' AND")

    def values(first: bool) -> None:
        monkeypatch.setenv("TOWN", "Kiel" if first else "Bonn")
        monkeypatch.setenv("NUMBER", "1" if first else "2")

    values(True)
    with opened(old, tmp_path) as app:
        app.send("s", [{"x": x} for x in ("Kiel", "Bonn", "15", "25")])
        app.drain()
        kept = rows_of(app, "t")
    values(False)
    with pytest.raises(UpgradeNeeded, match="another value"):
        App(old, state=tmp_path)
    with pytest.raises(StateForeign, match="cannot be built beside the old one"):
        opened(old, tmp_path, shadow=True)
    values(True)
    with opened(new, tmp_path, shadow=True) as app:
        app.drain()
        assert rows_of(app, "t") == kept != rows_of(app, "t$next")
    values(False)
    with pytest.raises(StateForeign, match="cannot be built beside the old one"):
        opened(new, tmp_path, shadow=True)
    values(True)
    with opened(new, tmp_path) as app:
        app.drain()
        assert rows_of(app, "t") == kept
        app.sql("ALTER TABLE t SWAP WITH t$next")
        assert rows_of(app, "t") != kept
