"""ALTER TABLE … CASCADE: what uses a renamed column or table follows, what uses a dropped column is dropped."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.errors import ConnectionLost, Error, InUse, NotSupported, SqlSyntaxError
from millpond.sql.parse import parse
from millpond.testing.faults import failing
from tests.contract.places import SERVED, Places

TABLES = """
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b STRING) WITH ({stored});
    CREATE TABLE s (id INT, x INT);
    CREATE STREAM e (id INT, n INT);
"""
IN_MEMORY = TABLES.format(stored="'extension' = 'memory'")
USERS = """
    INSERT INTO t VALUES (1, 10, 'x'), (2, 20, 'y');
    INSERT INTO s VALUES (1, 10), (2, 5);
    CREATE TABLE seen (id INT, n INT, a INT);
    INSERT INTO seen SELECT e.id, e.n, t.a FROM e JOIN t ON t.id = e.id;
    UPDATE t SET a = a + e.n FROM e WHERE t.id = e.id;
    INSERT INTO t (id, a) SELECT id + 100, n FROM e;
    MERGE INTO t USING e ON t.id = e.id + 200 WHEN MATCHED AND a > 0 THEN UPDATE SET a = t.a + 1
        WHEN NOT MATCHED THEN INSERT (id, a) VALUES (e.id + 200, e.n);
    CREATE MATERIALIZED VIEW total AS SELECT SUM(a), COUNT(*) AS c FROM t;
    CREATE MATERIALIZED VIEW every AS SELECT * FROM t;
    CREATE VIEW big AS SELECT id, a FROM t WHERE a > 5;
    CREATE VIEW bigger AS SELECT * FROM big;
    CREATE MATERIALIZED VIEW groups AS SELECT a, COUNT(*) AS c FROM bigger GROUP BY a;
    CREATE TABLE joined AS SELECT e.id, t.a FROM e JOIN t ON t.id = e.id;
    CREATE INDEX by_a ON t (a);
"""
STORED = ["memory", "sqlite", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SERVED)]
NAMES = ("seen", "total", "every", "big", "bigger", "groups", "joined")


def rows(app: App, sql: str) -> list[tuple[object, ...]]:
    return [tuple(r.values()) for r in app.sql(sql).rows()]


def everything(app: App) -> dict[str, Any]:
    app.drain()
    found = {name: app.sql(f"SELECT * FROM {name} ORDER BY ALL") for name in NAMES}
    return {name: (result.to_arrow().column_names, result.rows()) for name, result in found.items()}


def texts(app: App) -> dict[str, str]:
    return {
        name: str(app.sql(f"SHOW CREATE TABLE {name}").rows()[0]["statement"]) for name in ("big", "every")
    }


def file_of(kind: str, places: Places) -> str:
    """Returns a file whose table t is stored by a backend; those outside have no index."""
    place = places.new(kind)
    stored = {"extension": place.backend, **place.settings}
    users = USERS if kind == "memory" else USERS.replace("CREATE INDEX by_a ON t (a);", "")
    return TABLES.format(stored=", ".join(f"'{name}' = '{value}'" for name, value in stored.items())) + users


@pytest.mark.parametrize("kind", STORED)
def test_what_uses_it_follows(kind: str, places: Places, tmp_path: Path) -> None:
    file, other = file_of(kind, places), file_of("memory", places)
    with App(file, state=tmp_path / "1", _direct=True) as app, App(other, _direct=True) as fresh:
        for each in (app, fresh):
            each.send("e", [{"id": 1, "n": 1}])
            each.drain()
        changed = app.sql("ALTER TABLE t RENAME COLUMN a TO amount CASCADE").rows()
        assert {"action": "follows", "kind": "view", "name": "big"} in changed
        assert everything(app) == everything(fresh)
        app.sql("ALTER TABLE t RENAME TO u CASCADE")
        assert texts(app) == {
            "big": "CREATE VIEW big AS SELECT id, amount AS a FROM u AS t WHERE amount > 5",
            "every": "CREATE MATERIALIZED VIEW every AS SELECT t.id, t.amount AS a, t.b FROM u AS t",
        }
        for each in (app, fresh):
            each.send("e", [{"id": 1, "n": 2}, {"id": 2, "n": 2}])
        assert everything(app) == everything(fresh)
        assert {q["state"] for q in app.sql("SHOW QUERIES").rows()} == {"running"}
        (tmp_path / "old.sql").write_text(file)
        plan = app.sql(f"EXPLAIN UPGRADE '{tmp_path / 'old.sql'}'").rows()
        assert {p["action"] for p in plan} == {"kept"}
    with App(file, state=tmp_path / "1", _direct=True) as app, App(other, _direct=True) as fresh:
        app.send("e", [{"id": 2, "n": 3}])
        for n in ([{"id": 1, "n": 1}], [{"id": 1, "n": 2}, {"id": 2, "n": 2}], [{"id": 2, "n": 3}]):
            fresh.send("e", n)
            fresh.drain()
        assert everything(app) == everything(fresh)
        assert app.table("u").schema.names == ("id", "amount", "b")
        assert rows(app, "SELECT b FROM u WHERE amount = 25") == [("y",)]


@pytest.mark.parametrize("kind", STORED)
def test_what_uses_a_dropped_column_is_dropped(kind: str, places: Places, tmp_path: Path) -> None:
    file = file_of(kind, places)
    file += "CREATE VIEW stays AS SELECT id, b FROM t; CREATE MATERIALIZED VIEW ids AS SELECT id FROM t;"
    with App(file, state=tmp_path, _direct=True) as app:
        app.send("e", [{"id": 1, "n": 1}])
        app.drain()
        dropped = app.sql("ALTER TABLE t DROP COLUMN a CASCADE").rows()
        assert {d["action"] for d in dropped} == {"dropped"}
        names = {(d["kind"], d["name"]) for d in dropped if d["kind"] != "query"}
        wanted = {("table", n) for n in ("total", "every", "groups", "joined")}
        wanted |= {("view", "big"), ("view", "bigger")}
        assert names == wanted | ({("index", "by_a")} if kind == "memory" else set())
        assert sum(d["kind"] == "query" for d in dropped) == 4
    for _ in range(2):
        with App(file, state=tmp_path, _direct=True) as app:
            found = [(1, "x"), (2, "y"), (101, None), (201, None)]
            assert rows(app, "SELECT * FROM t ORDER BY id") == found
            assert rows(app, "SELECT * FROM stays ORDER BY id") == found
            assert rows(app, "SELECT * FROM seen") == [(1, 1, 10)]
            assert rows(app, "SELECT * FROM ids ORDER BY 1") == [(i,) for i, _ in found]
            shown = {r["name"] for r in app.sql("SHOW TABLES").rows()}
            assert not shown & {"total", "every", "groups", "joined"}
            assert not [q for q in app.sql("SHOW QUERIES").rows() if "insert" in str(q["name"])]
    with App(file, state=tmp_path, _direct=True) as app:
        app.sql("ALTER TABLE t ADD COLUMN a INT DEFAULT 7")
    with App(file, state=tmp_path, _direct=True) as app:  # the file has them, and now they can be
        assert rows(app, "SELECT * FROM big ORDER BY id") == [(1, 7), (2, 7), (101, 7), (201, 7)]


def test_statements_of_the_file(tmp_path: Path) -> None:
    file = """
        CREATE TABLE t (id INT, a INT, c INT);
        INSERT INTO t VALUES (1, 2, 3);
        CREATE VIEW v AS SELECT a FROM t;
        CREATE VIEW gone AS SELECT c FROM t;
        CREATE VIEW with_it AS SELECT * FROM gone;
        ALTER TABLE t RENAME COLUMN a TO b CASCADE;
        ALTER TABLE t RENAME TO u CASCADE;
        ALTER TABLE u DROP COLUMN c CASCADE;
        CREATE VIEW w AS SELECT a + 1 AS a FROM v;
        CREATE MATERIALIZED VIEW m AS SELECT a FROM w;
    """
    for _ in range(3):
        with App(file, state=tmp_path, _direct=True) as app:
            app.drain()
            assert rows(app, "SELECT * FROM m") == [(3,)] and rows(app, "SELECT * FROM u") == [(1, 2)]
            with pytest.raises(Error, match="gone"):
                app.sql("SELECT * FROM gone")


@pytest.mark.parametrize(
    ("declared", "statement", "message"),
    [
        ("CREATE VIEW v AS SELECT x FROM s JOIN t USING (id)", "RENAME COLUMN id TO k", 'view "v"'),
        ("CREATE VIEW v AS SELECT x AS k, k + 1 AS z FROM s, t", "RENAME COLUMN a TO k", "something else"),
        ("CREATE VIEW v AS SELECT STRUCT(*) AS r FROM t", "RENAME COLUMN a TO k", 'view "v"'),
        ("CREATE VIEW v AS SELECT * REPLACE (a + 1 AS a) FROM t", "RENAME COLUMN a TO k", 'view "v"'),
    ],
)
def test_what_cannot_follow_is_named(declared: str, statement: str, message: str) -> None:
    with App(f"{IN_MEMORY} {declared};", _direct=True) as app:
        before = app.sql("SHOW CREATE TABLE v").rows()
        with pytest.raises(InUse, match=message) as caught:
            app.sql(f"ALTER TABLE t {statement} CASCADE")
        assert caught.value.place is not None and caught.value.hint is not None
        assert app.table("t").schema.names == ("id", "a", "b")
        assert app.sql("SHOW CREATE TABLE v").rows() == before


@pytest.mark.parametrize("action", ["ADD COLUMN c INT", "ALTER COLUMN a TYPE BIGINT", "SET ('ttl' = '1h')"])
def test_other_changes_have_no_cascade(action: str) -> None:
    (error,) = parse(f"ALTER TABLE t {action} CASCADE").errors
    assert isinstance(error, SqlSyntaxError)


def test_the_hint_says_cascade() -> None:
    with App(IN_MEMORY + "CREATE VIEW v AS SELECT a FROM t", _direct=True) as app:
        for action in ("DROP COLUMN a", "RENAME COLUMN a TO c", "RENAME TO u"):
            with pytest.raises(InUse) as caught:
                app.sql(f"ALTER TABLE t {action}")
            assert "CASCADE" in str(caught.value.hint)


def test_nothing_uses_it() -> None:
    with App(IN_MEMORY, _direct=True) as app:
        assert app.sql("ALTER TABLE t RENAME COLUMN a TO c CASCADE").rows() == []
        assert app.sql("ALTER TABLE t DROP COLUMN c CASCADE").rows() == []
        assert app.sql("ALTER TABLE t DROP COLUMN IF EXISTS c CASCADE").rows() == []


def test_an_upgrade_after_it_compares_with_the_new_text(tmp_path: Path) -> None:
    table, view = "CREATE TABLE t (id INT, a INT);", "CREATE MATERIALIZED VIEW m AS SELECT a FROM t;"
    with App(f"{table} {view} INSERT INTO t VALUES (1, 2);", state=tmp_path, _direct=True) as app:
        app.sql("ALTER TABLE t RENAME COLUMN a TO b CASCADE")
    new = "CREATE TABLE t (id INT, b INT); CREATE MATERIALIZED VIEW m AS SELECT b AS a FROM t;"
    mixed = f"CREATE TABLE t (id INT, b INT); {view}"
    for text in (mixed, new, new):
        with App(f"{text} INSERT INTO t VALUES (1, 2);", state=tmp_path, _direct=True) as app:
            app.drain()
            assert app.sql("SELECT * FROM m").rows() == [{"a": 2}]


QUERIES = (
    "SELECT {c} FROM {t}",
    "SELECT *, {c} + 1 AS more FROM {t}",
    "SELECT {t}.{c}, x FROM s JOIN {t} ON {t}.id = s.id AND {c} > 3",
    "SELECT {c}, COUNT(*), MAX({d}) FROM {t} GROUP BY {c} HAVING MAX({d}) > 0",
    "WITH q AS (SELECT {c} AS v, {d} FROM {t}) SELECT v AS w, q.* FROM q",
    "SELECT x, (SELECT MAX({c}) FROM {t} AS i WHERE i.id <> s.id) AS m FROM s",
    "SELECT p.{c}, q.{c} AS other FROM {t} p JOIN {t} AS q ON p.id = q.id WHERE p.{d} IS NOT NULL",
    "SELECT * EXCEPT ({c}) FROM {t}",
    "SELECT {c} FROM {t} WHERE {d} IN (SELECT {d} FROM {t} WHERE {c} > 2) UNION ALL SELECT x FROM s",
    "SELECT CASE WHEN {c} > {d} THEN '{c}' END, ROW_NUMBER() OVER (PARTITION BY {d} ORDER BY {c}, id) FROM {t}",
)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(2, 60))])
def test_random_names_against_a_fresh_run_of_the_new_texts(seed: int, tmp_path: Path) -> None:
    pick = random.Random(seed)
    table, columns = "t", ["id", "a", "b"]
    declared = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT); CREATE TABLE s (id INT, x INT);"
    views = []
    for number, query in enumerate(pick.sample(QUERIES, 6)):
        kind = pick.choice(["VIEW", "MATERIALIZED VIEW"]) if "ROW_NUMBER" not in query else "VIEW"
        c, d = pick.sample(["a", "b"], 2)
        views.append(f"CREATE {kind} v{number} AS {query.format(t='t', c=c, d=d)};")
    file = f"{declared} INSERT INTO s VALUES (1, 4), (2, 5); {' '.join(views)}"
    app = App(file, state=tmp_path, _direct=True)
    try:
        outputs = [app.sql(f"SELECT * FROM v{n}").to_arrow().column_names for n in range(len(views))]
        for key in range(8):
            app.sql(f"INSERT INTO {table} VALUES ({key}, {pick.randint(0, 6)}, {pick.randint(0, 6)})")
            new = pick.choice([n for n in "abcdex" if n not in columns])
            try:
                if pick.random() < 0.3:
                    app.sql(f"ALTER TABLE {table} RENAME TO {table}{key} CASCADE")
                    table = f"{table}{key}"
                else:
                    at = pick.randint(0, 2)
                    app.sql(f"ALTER TABLE {table} RENAME COLUMN {columns[at]} TO {new} CASCADE")
                    columns[at] = new
            except InUse:
                pass  # it is as it was, which the end shows
            if pick.random() < 0.2:
                app.close()
                app = App(file, state=tmp_path, _direct=True)
        app.drain()
        names = [table, "s", *(f"v{n}" for n in range(len(views)))]
        again = ";".join(str(app.sql(f"SHOW CREATE TABLE {name}").rows()[0]["statement"]) for name in names)
        with App(again, _direct=True) as fresh:
            for name in (table, "s"):
                for row in app.sql(f"SELECT * FROM {name}").rows():
                    fresh.table(name).insert(row)
            fresh.drain()
            for n, wanted in enumerate(outputs):
                found = [each.sql(f"SELECT * FROM v{n} ORDER BY ALL").to_arrow() for each in (app, fresh)]
                assert found[0].column_names == wanted
                assert found[0].to_pylist() == found[1].to_pylist(), again
    finally:
        app.close()


SAME_NAMES = """
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b STRING);
    CREATE TABLE s (id INT, a INT, k INT);
    CREATE STREAM e (id INT, a INT, k INT, b STRING);
    CREATE TABLE o (id INT, j STRING);
    INSERT INTO t VALUES (1, 10, 'x'), (2, 20, 'y');
    INSERT INTO s VALUES (1, 10, 8), (2, 5, 20);
"""


@pytest.mark.parametrize(
    "user",
    [
        "CREATE VIEW v AS SELECT t.id, b FROM t NATURAL JOIN s",
        "CREATE MATERIALIZED VIEW v AS SELECT t.id, b FROM s NATURAL JOIN t",
        "CREATE VIEW v AS SELECT id, b FROM t JOIN s USING (id, a)",
        "CREATE VIEW v AS SELECT id, to_json(struct(a, b)) AS j FROM t",
        "CREATE VIEW v AS SELECT id, to_json(array(struct(t.a))) AS j FROM t",
        "CREATE VIEW v AS SELECT id, to_json(struct(t.*)) AS j FROM t",
        "INSERT INTO o SELECT e.id, to_json(struct(t.a)) FROM e JOIN t ON t.id = e.id",
        "MERGE INTO t USING e ON t.id = e.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "MERGE INTO t USING e ON t.id = e.id WHEN NOT MATCHED THEN INSERT *",
    ],
)
def test_what_would_mean_something_else_is_refused(user: str) -> None:
    with App(SAME_NAMES + user, _direct=True) as app:
        with pytest.raises(InUse, match="cannot follow"):
            app.sql("ALTER TABLE t RENAME COLUMN a TO k CASCADE")
        assert rows(app, "SELECT a FROM t WHERE id = 1") == [(10,)]


@pytest.mark.parametrize(
    "user",
    [
        "CREATE VIEW v AS SELECT t.id, t.a, s.a AS other, s.k FROM t JOIN s ON t.id = s.id AND t.a >= s.a",
        "CREATE VIEW v AS SELECT id, a FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.id = t.id AND s.k > 9 AND a < t.a)",
        "CREATE VIEW v AS WITH x AS (SELECT id, a FROM t) SELECT x.a, s.k FROM x JOIN s ON s.a = x.a ORDER BY a",
        "CREATE VIEW v AS SELECT a AS k, SUM(a) OVER (PARTITION BY b ORDER BY a) AS w FROM t",
        "CREATE VIEW v AS SELECT id, to_json(struct(t.a AS a)) AS j FROM t",
        "CREATE VIEW v AS SELECT id, named_struct('a', a).a AS f FROM t",
        "CREATE VIEW v AS SELECT a FROM t UNION ALL SELECT a FROM s UNION ALL SELECT k FROM s",
    ],
)
def test_names_of_other_tables_stay(user: str) -> None:
    def found(app: App) -> object:
        result = app.sql("SELECT * FROM v ORDER BY ALL")
        return result.to_arrow().column_names, result.rows()

    with App(SAME_NAMES + user, _direct=True) as app, App(SAME_NAMES + user, _direct=True) as fresh:
        app.sql("ALTER TABLE t RENAME COLUMN a TO k CASCADE")
        assert found(app) == found(fresh)


@pytest.mark.parametrize(
    "user",
    [
        "UPDATE t SET b = CAST(e.a AS STRING) FROM e WHERE t.id + 4 = e.id",
        "MERGE INTO t USING e ON t.id = e.id WHEN MATCHED THEN UPDATE SET b = CAST(e.a AS STRING)"
        " WHEN NOT MATCHED THEN INSERT (id, b) VALUES (e.id, 'x')",
        "UPDATE s SET a = t.id FROM e JOIN t ON t.id + 4 = e.id WHERE s.id = e.id",
    ],
)
def test_statements_that_use_a_column_of_another_table_stay(user: str) -> None:
    with App(SAME_NAMES + user, _direct=True) as app, App(SAME_NAMES + user, _direct=True) as fresh:
        assert app.sql("ALTER TABLE t DROP COLUMN a CASCADE").rows() == []
        for each in (app, fresh):
            each.send("e", [{"id": 5, "a": 7, "k": 1, "b": "z"}])
            each.drain()
        read = "SELECT t.id, t.b, s.a FROM t FULL JOIN s ON s.id = t.id ORDER BY ALL"
        assert rows(app, read) == rows(fresh, read)


def test_statements_that_use_the_column_go() -> None:
    user = "UPDATE t SET b = CAST(t.a AS STRING) FROM e WHERE t.id = e.id"
    with App(SAME_NAMES + user, _direct=True) as app:
        assert [r["action"] for r in app.sql("ALTER TABLE t DROP COLUMN a CASCADE").rows()] == ["dropped"]


@pytest.mark.parametrize("index", ["CREATE INDEX IF NOT EXISTS a ON a (a)", "CREATE INDEX k ON a (a, id)"])
def test_an_index_over_a_column_with_the_name_of_its_table(index: str, tmp_path: Path) -> None:
    file = f"CREATE TABLE a (id INT PRIMARY KEY, a INT); {index};"
    with App(file, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO a VALUES (1, 5)")
        app.sql("ALTER TABLE a RENAME COLUMN a TO k CASCADE")
    for _ in range(2):
        with App(file, state=tmp_path, _direct=True) as app:
            assert rows(app, "SELECT id FROM a WHERE k = 5") == [(1,)]
            found = [(i.name, i.columns[0]) for i in app._runtime.catalog.indexes("a")]
            assert found == [("a" if "EXISTS" in index else "k", "k")]


def test_a_view_with_a_cte_of_the_name_of_its_table_uses_it() -> None:
    user = "CREATE VIEW v AS WITH t AS (SELECT id, a FROM t) SELECT * FROM t WHERE a > 1"
    with App(SAME_NAMES + user, _direct=True) as app:
        for change in ("RENAME COLUMN a TO k", "RENAME TO u", "DROP COLUMN a"):
            with pytest.raises(InUse, match='"v"'):
                app.sql(f"ALTER TABLE t {change}")
        with pytest.raises(InUse, match='"v"'):
            app.sql("DROP TABLE t")
        assert rows(app, "SELECT COUNT(*) FROM v") == [(2,)]


def test_nothing_is_created_or_dropped_while_it_is_open_what_follows(tmp_path: Path) -> None:
    stored = f"WITH ('extension' = 'sqlite', 'path' = '{tmp_path}/x.db')"
    file = f"CREATE TABLE t (id INT PRIMARY KEY, a INT) {stored};"
    users = "CREATE VIEW v AS SELECT a FROM t; CREATE VIEW w AS SELECT id, a FROM t;"
    rename = "ALTER TABLE t RENAME COLUMN a TO k CASCADE"
    with App(file + users, state=tmp_path / "state", _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 5)")
        with failing("alter: changed in the database", ConnectionLost("gone")), pytest.raises(ConnectionLost):
            app.sql(rename)
        for other in (
            "DROP VIEW v",
            "CREATE OR REPLACE VIEW w AS SELECT id FROM t",
            "CREATE TABLE more (id INT)",
        ):
            with pytest.raises(NotSupported, match="has begun"):
                app.sql(other)
        app.sql(rename)
        app.sql("DROP VIEW v")
        assert rows(app, "SELECT * FROM w") == [(1, 5)]
