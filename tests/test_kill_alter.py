"""SIGKILL at every step of ALTER TABLE: the table is as before, or as after, with all of its rows.

This file is also the program that is killed.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from millpond import App
from millpond.testing.faults import killing
from tests.servers import Servers
from tests.test_kill import run_to_the_end, running

ADD, RENAME = ("ADD COLUMN c INT", [1, 2, "x", None]), ("RENAME COLUMN a TO c", [1, 2, "x"])
DROP, WIDEN = ("DROP COLUMN b", [1, 2]), ("ALTER COLUMN a TYPE BIGINT", [1, 2, "x"])
KILLS = {
    "memory": [
        ("alter: checked", ADD),
        ("journal: written", RENAME),
        ("journal: committed", RENAME),
        ("alter: journalled", DROP),
        ("alter: shown", WIDEN),
    ],
    "sqlite": [
        ("alter: pending", ADD),
        ("alter: pending", DROP),
        ("alter: changed in the database", RENAME),
        ("alter: changed in the database", DROP),
    ],
    "a server": [
        ("alter: pending", DROP),
        ("alter: changed in the database", ("ADD COLUMN c INT DEFAULT 7", [1, 2, "x", 7])),
        ("alter: changed in the database", RENAME),
        ("alter: journalled", WIDEN),
    ],
}


def sql_of(extension: str) -> str:
    """Returns the table with that extension, or with those options."""
    where = extension if "=" in extension else f"extension = '{extension}'"
    return f"CREATE TABLE t (id INT PRIMARY KEY, a INT, b STRING) WITH ({where});"


def work(state: str, extension: str, alter: str, point: str) -> None:
    with App(sql_of(extension), state=state, _direct=True) as app:
        if not point:
            found = app.sql("SELECT * FROM t").rows()
            app.sql("INSERT INTO t (id) VALUES (2)")
            print(json.dumps([list(r.items()) for r in found]), flush=True)
            return
        app.sql("INSERT INTO t VALUES (1, 2, 'x')")
        with killing(point) if point else nullcontext():
            app.sql(f"ALTER TABLE t {alter}")


USERS = """
    CREATE STREAM e (id INT, n INT);
    CREATE VIEW v AS SELECT a FROM t;
    CREATE MATERIALIZED VIEW m AS SELECT SUM(a) AS total FROM t;
    CREATE TABLE seen (id INT, a INT);
    INSERT INTO seen SELECT e.id, t.a FROM e JOIN t ON t.id = e.id;
"""
CASCADES = [
    ("memory", "alter: journalled", "RENAME COLUMN a TO c"),
    ("memory", "journal: committed", "RENAME TO u"),
    ("memory", "drop journalled", "DROP COLUMN a"),
    ("sqlite", "alter: pending", "RENAME COLUMN a TO c"),
    ("sqlite", "alter: changed in the database", "DROP COLUMN a"),
]
MORE_CASCADES = [
    ("memory", "journal: written", "RENAME COLUMN a TO c"),
    ("memory", "journal: committed", "DROP COLUMN a"),
    ("sqlite", "alter: changed in the database", "RENAME COLUMN a TO c"),
    ("sqlite", "alter: pending", "DROP COLUMN a"),
]


def work_of_cascade(state: str, extension: str, alter: str, point: str) -> None:
    with App(sql_of(extension) + USERS, state=state, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2, 'x')")
        app.send("e", [{"id": 1, "n": 1}])
        app.drain()
        with killing(point):
            app.sql(f"ALTER TABLE t {alter} CASCADE")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extension", "point", "alter"),
    [*CASCADES, *(pytest.param(*kill, marks=pytest.mark.chaos) for kill in MORE_CASCADES)],
)
def test_what_follows_is_in_the_same_commit(extension: str, point: str, alter: str, tmp_path: Path) -> None:
    command = (sys.executable, "-m", __name__, "cascade", str(tmp_path), extension, alter, point)
    with running(*command) as process:
        _, err = process.communicate(timeout=100)
        assert process.returncode == -9, (point, err)
    made = point != "journal: written"
    for again in range(2):
        with App(sql_of(extension) + USERS, state=tmp_path, _direct=True) as app:
            app.send("e", [{"id": 1, "n": 2}])
            app.drain()
            table = "u" if alter == "RENAME TO u" and made else "t"
            names = ("id", "b") if "DROP" in alter else ("id", "c", "b") if "COLUMN" in alter else None
            assert app.table(table).schema.names == (names if made and names else ("id", "a", "b"))
            seen = app.sql("SELECT * FROM seen").rows()
            if "DROP" in alter:
                assert seen == [{"id": 1, "a": 2}] and app.sql("SHOW QUERIES").rows() == []
                assert "m" not in {r["name"] for r in app.sql("SHOW TABLES").rows()}
            else:
                assert seen == [{"id": 1, "a": 2}] * (again + 2)
                assert app.sql("SELECT * FROM v").rows() == [{"a": 2}]
                assert app.sql("SELECT * FROM m").rows() == [{"total": 2}]


def file_of(alter: str) -> str:
    return f"{sql_of('sqlite')} ALTER TABLE t {alter};"


def work_of_file(state: str, alter: str, point: str) -> None:
    with killing(point), App(file_of(alter), state=state, _direct=True):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "change"), [("alter: pending", DROP), ("alter: changed in the database", ADD)]
)
def test_a_statement_of_the_file_is_done_once(
    point: str, change: tuple[str, list[object]], tmp_path: Path
) -> None:
    alter, values = change
    with running(sys.executable, "-m", __name__, "file", str(tmp_path), alter, point) as process:
        _, err = process.communicate(timeout=100)
        assert process.returncode == -9, (point, err)
    for _ in range(2):
        with App(file_of(alter), state=tmp_path, _direct=True) as app:
            assert len(app.table("t").schema.names) == len(values)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["alter: pending", "alter: changed in the database"])
def test_an_app_that_only_reads_changes_nothing(point: str, tmp_path: Path) -> None:
    command = (sys.executable, "-m", __name__, str(tmp_path), "sqlite", DROP[0], point)
    with running(*command) as process:
        _, err = process.communicate(timeout=100)
        assert process.returncode == -9, (point, err)

    def there() -> list[str]:
        with closing(sqlite3.connect(tmp_path / "tables.db")) as connection:
            return [r[1] for r in connection.execute("PRAGMA table_info(t)")]

    before = there()
    assert before == (["id", "a", "b"] if point == "alter: pending" else ["id", "a"])
    with App(state=tmp_path, _read_only=True) as app:
        (found,) = app.sql("SELECT * FROM t").rows()
        assert list(found) == before and found["a"] == 2
    assert there() == before
    with App(sql_of("sqlite"), state=tmp_path, _direct=True) as app:
        assert list(app.table("t").schema.names) == there() == ["id", "a"]


@pytest.mark.slow
@pytest.mark.parametrize("extension", ["memory", "sqlite"])
def test_either_before_or_after(extension: str, tmp_path: Path) -> None:
    for number, kill in enumerate(KILLS[extension]):
        check_kill(extension, str(tmp_path / str(number)), *kill)


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_either_before_or_after_on_a_server(kind: str, servers: Servers, tmp_path: Path) -> None:
    for number, kill in enumerate(KILLS["a server"]):
        name = f"killed{number}"
        url = (
            servers.postgresql.new_schema(name)
            if kind == "postgresql"
            else servers.mariadb.new_database(name)
        )
        check_kill(f"extension = '{kind}', url = '{url}'", str(tmp_path / str(number)), *kill)


def check_kill(extension: str, state: str, point: str, change: tuple[str, list[object]]) -> None:
    """Kills a process that changes the table, and checks what is there after the next start."""
    before, (alter, values) = [["id", 1], ["a", 2], ["b", "x"]], change
    command = (sys.executable, "-m", __name__, state, extension, alter)
    with running(*command, point) as process:
        _, err = process.communicate(timeout=100)
        assert process.returncode == -9, (point, err)
    (found,) = json.loads(run_to_the_end(*command, "").splitlines()[-1])
    if point in ("alter: checked", "journal: written"):
        assert found == before, (point, alter)
    else:
        assert [v for _, v in found] == values and (found != before or "TYPE" in alter), (point, alter)


if __name__ == "__main__":
    if sys.argv[1] == "file":
        work_of_file(*sys.argv[2:])
    elif sys.argv[1] == "cascade":
        work_of_cascade(*sys.argv[2:])
    else:
        work(*sys.argv[1:])
