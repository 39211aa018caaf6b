"""ALTER TABLE: columns and names of tables change while statements, views and programs use them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond import App
from millpond.alterations import TableChange
from millpond.connectors.sqlite.table import SqliteTable
from millpond.errors import (
    AlreadyExists,
    Conflict,
    ConnectionLost,
    Error,
    InUse,
    NotSupported,
    SqlError,
    UpgradeNeeded,
)

SIZE = 1 << 16
"""The rows of a full block."""
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b STRING);"


def rows(app: App, sql: str = "SELECT * FROM t ORDER BY 1") -> list[tuple[object, ...]]:
    return [tuple(r.values()) for r in app.sql(sql).rows()]


def test_statements_views_and_programs_go_on(tmp_path: Path) -> None:
    sql = f"""
        {TABLE}
        INSERT INTO t VALUES (1, 10, 'x'), (2, 20, 'y');
        CREATE STREAM e (id INT, n INT);
        CREATE TABLE seen (id INT, n INT, a INT);
        INSERT INTO seen SELECT e.id, e.n, t.a FROM e JOIN t ON t.id = e.id;
        UPDATE t SET a = t.a + e.n FROM e WHERE t.id = e.id;
        INSERT INTO t (id, a) SELECT id + 100, n FROM e;
        CREATE MATERIALIZED VIEW total AS SELECT SUM(a) AS s FROM t;
        CREATE VIEW named AS SELECT id, a FROM t WHERE a > 5;
    """
    with App(sql, state=tmp_path, _direct=True) as app:
        table = app.table("t")
        get = table.get_record
        assert get(1) == {"id": 1, "a": 10, "b": "x"}
        app.send("e", [{"id": 1, "n": 1}])
        app.drain()
        app.sql("ALTER TABLE t ADD COLUMN c DOUBLE")
        assert get(1) == table.get_record(1) == {"id": 1, "a": 11, "b": "x", "c": None}
        app.send("e", [{"id": 1, "n": 1}, {"id": 2, "n": 2}])
        app.drain()
        app.sql("ALTER TABLE t DROP COLUMN b; ALTER TABLE t RENAME COLUMN c TO d")
        table.update({"id": 2}, {"d": 1.5})
        app.send("e", [{"id": 2, "n": 3}])
        app.drain()
        found = [(1, 12, None), (2, 25, 1.5), (101, 1, None), (102, 3, None)]
        assert rows(app) == found and get(2) == {"id": 2, "a": 25, "d": 1.5}
        assert rows(app, "SELECT * FROM total") == [(41,)]
        assert rows(app, "SELECT * FROM named ORDER BY id") == [(1, 12), (2, 25)]
        assert rows(app, "SELECT id, n FROM seen ORDER BY ALL") == [(1, 1), (1, 1), (2, 2), (2, 3)]
        assert {q["state"] for q in app.sql("SHOW QUERIES").rows()} == {"running"}
    with App(sql, state=tmp_path, _direct=True) as app:
        assert rows(app) == found
        app.send("e", [{"id": 1, "n": 1}])
        app.drain()
        assert rows(app)[0] == (1, 13, None) and rows(app, "SELECT * FROM total") == [(42,)]


def test_what_reads_all_columns_gets_the_new_one(tmp_path: Path) -> None:
    sql = f"""
        {TABLE}
        CREATE STREAM e (id INT);
        CREATE TABLE joined AS SELECT t.* FROM e JOIN t ON t.id = e.id;
        CREATE MATERIALIZED VIEW copy AS SELECT * FROM t;
        CREATE VIEW named AS SELECT * FROM t;
    """
    with App(sql, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2, 'x')")
        app.sql("ALTER TABLE t ADD COLUMN c INT")
        app.sql("UPDATE t SET c = 7")
        app.send("e", [{"id": 1}])
        app.drain()
    with App(sql, state=tmp_path, _direct=True) as app:
        for name in ("joined", "copy", "named"):
            assert rows(app, f"SELECT * FROM {name}") == [(1, 2, "x", 7)], name


@pytest.mark.parametrize(
    ("declared", "statement", "message"),
    [
        ("CREATE VIEW v AS SELECT b FROM t", "DROP COLUMN b", 'view "v"'),
        ("CREATE VIEW v AS SELECT b FROM t; CREATE VIEW w AS SELECT * FROM v", "DROP COLUMN b", 'view "w"'),
        ("CREATE MATERIALIZED VIEW m AS SELECT id, a FROM t", "RENAME COLUMN a TO x", 'table "m"'),
        ("CREATE TABLE j AS SELECT e.id FROM e JOIN t ON t.a = e.id", "RENAME COLUMN a TO x", '"table:j"'),
        ("CREATE INDEX i ON t (b)", "RENAME COLUMN b TO x", 'index "i"'),
        ("UPDATE t SET b = 'x' FROM e WHERE t.id = e.id", "DROP COLUMN b", "query"),
        ("INSERT INTO t (id, b) SELECT id, 'x' FROM e", "RENAME COLUMN b TO x", "query"),
        ("INSERT INTO t SELECT id, id, 'x' FROM e", "ADD COLUMN c INT", "would fail"),
        ("CREATE VIEW v AS SELECT a FROM t", "ALTER COLUMN a TYPE BIGINT", 'view "v"'),
        ("CREATE VIEW v AS SELECT id FROM t", "RENAME TO u", 'view "v"'),
        ("CREATE INDEX i ON t (b)", "RENAME TO u", 'index "i"'),
    ],
)
def test_what_uses_it_is_named(declared: str, statement: str, message: str) -> None:
    with App(f"{TABLE} CREATE STREAM e (id INT); {declared};", _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2, 'x')")
        with pytest.raises(InUse, match=message) as caught:
            app.sql(f"ALTER TABLE t {statement}")
        assert caught.value.place is not None
        assert rows(app) == [(1, 2, "x")]


@pytest.mark.parametrize(
    ("statement", "at", "message"),
    [
        ("ALTER TABLE t ADD COLUMN A INT", 26, "already in table"),
        ("ALTER TABLE t ADD COLUMN c INT NOT NULL", 26, "NOT NULL"),
        ("ALTER TABLE t ADD COLUMN c INT PRIMARY KEY", 13, "primary key"),
        ("ALTER TABLE t ADD COLUMN _seq INT", 26, "_seq"),
        ("ALTER TABLE t RENAME COLUMN x TO y", 29, "not in table"),
        ("ALTER TABLE t RENAME COLUMN a TO b", 34, "already in table"),
        ("ALTER TABLE t DROP COLUMN id", 27, "primary key"),
        ("ALTER TABLE t DROP COLUMN x", 27, "not in table"),
        ("ALTER TABLE t ALTER COLUMN a TYPE SMALLINT", 28, "every value"),
        ("ALTER TABLE t ALTER COLUMN id TYPE BIGINT", 28, "primary key"),
        ("ALTER TABLE nothing ADD COLUMN a INT", 13, "nothing"),
        ("ALTER TABLE v ADD COLUMN c INT", 13, "is a view"),
        ("ALTER TABLE m ADD COLUMN c INT", 13, "those of its query"),
        ("ALTER TABLE t RENAME TO m", 25, "already exists"),
        ("ALTER TABLE t SET ('durability' = 'none')", 20, "cannot change"),
        ("ALTER TABLE t SET ('nope' = '1')", 20, "not known"),
        ("ALTER TABLE t SET ('on.conflict' = 'maybe')", 20, "maybe"),
        ("ALTER TABLE t MOVE COLUMN a", 15, "ADD COLUMN"),
    ],
)
def test_mistakes_are_shown_in_their_place(statement: str, at: int, message: str) -> None:
    more = "CREATE VIEW v AS SELECT id FROM t; CREATE MATERIALIZED VIEW m AS SELECT id FROM t;"
    with App(f"{TABLE}{more}", _direct=True) as app:
        with pytest.raises(SqlError, match=message) as caught:
            app.sql(statement)
        assert caught.value.column == at
        assert app.table("t").schema.names == ("id", "a", "b")


def test_nothing_to_do() -> None:
    with App(TABLE, _direct=True) as app:
        app.sql("ALTER TABLE t ADD COLUMN IF NOT EXISTS a INT")
        app.sql("ALTER TABLE t DROP COLUMN IF EXISTS c")
        app.sql("ALTER TABLE t ALTER COLUMN a TYPE INT")
        assert app.table("t").schema.names == ("id", "a", "b")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (a INT); ALTER TABLE t DROP COLUMN IF EXISTS c; ALTER TABLE t ADD COLUMN c INT;",
        "CREATE TABLE t (a INT, c SMALLINT); ALTER TABLE t ALTER COLUMN c TYPE SMALLINT;"
        "ALTER TABLE t ALTER COLUMN c TYPE INT;",
        "CREATE TABLE t (a INT, c INT, d INT); ALTER TABLE t ADD COLUMN IF NOT EXISTS d INT;"
        "ALTER TABLE t DROP COLUMN d;",
        "CREATE TABLE t (a INT, c INT); ALTER TABLE t RENAME TO t; ALTER TABLE t RENAME TO u;"
        "ALTER TABLE u RENAME TO t;",
    ],
)
def test_nothing_to_do_is_done_once(text: str, tmp_path: Path) -> None:
    for _ in range(3):
        with App(f"{text} INSERT INTO t VALUES (1, 2);", state=tmp_path, _direct=True) as app:
            assert app.sql("SELECT * FROM t").rows() == [{"a": 1, "c": 2}]


def test_a_table_that_was_dropped_is_created_and_changed_again(tmp_path: Path) -> None:
    text = (
        "CREATE TABLE t (a INT); ALTER TABLE t ADD COLUMN b INT; ALTER TABLE t ADD COLUMN IF NOT EXISTS b INT;"
        "ALTER TABLE t RENAME TO u; CREATE VIEW v AS SELECT b FROM u;"
    )
    for _ in range(2):
        with App(text, state=tmp_path, _direct=True) as app:
            assert app.table("u").schema.names == ("a", "b")
            app.sql("DROP VIEW v; DROP TABLE u")
    with App(text, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO u VALUES (1, 2)")
    with App(text, state=tmp_path, _direct=True) as app:
        assert rows(app, "SELECT * FROM u") == [(1, 2)]


def test_types_become_wider(tmp_path: Path) -> None:
    sql = "CREATE TABLE t (id INT PRIMARY KEY, i INT, f FLOAT, d DECIMAL(5,2), s SMALLINT);"
    with App(sql, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2, 0.5, 1.25, 3), (2, NULL, NULL, NULL, NULL)")
        changes = (("i", "BIGINT"), ("f", "DOUBLE"), ("d", "DECIMAL(12,4)"), ("s", "DECIMAL(20,2)"))
        for name, dtype in changes:
            app.sql(f"ALTER TABLE t ALTER COLUMN {name} TYPE {dtype}")
        app.sql("INSERT INTO t VALUES (3, 5000000000, 1e300, 1234567.1234, 1.5)")
        found = rows(app)
    with App(sql, state=tmp_path, _direct=True) as app:
        assert rows(app) == found
        assert [(c["column"], c["type"]) for c in app.sql("DESCRIBE t").rows()][1:] == list(changes)
        assert found[2][1:3] == (5_000_000_000, 1e300) and str(found[0][3]) == "1.2500"


def test_a_dropped_column_does_not_come_back_after_a_restart(tmp_path: Path) -> None:
    with App(TABLE, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2, 'x')")
        app.sql("ALTER TABLE t DROP COLUMN b; ALTER TABLE t ADD COLUMN b STRING")
        app.sql("INSERT INTO t VALUES (2, 3, 'y')")
        app.sql("ALTER TABLE t RENAME COLUMN a TO c; ALTER TABLE t ADD COLUMN a INT")
        assert rows(app) == [(1, 2, None, None), (2, 3, "y", None)]
    with App(TABLE, state=tmp_path, _direct=True) as app:
        assert rows(app) == [(1, 2, None, None), (2, 3, "y", None)]
        app._runtime.compactor.compact("t")
        app.sql("ALTER TABLE t DROP COLUMN a")
    with App(TABLE, state=tmp_path, _direct=True) as app:
        assert rows(app) == [(1, 2, None), (2, 3, "y")]


def test_the_file_may_have_the_old_text_or_the_new_one(tmp_path: Path) -> None:
    with App(TABLE, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2, 'x')")
        app.sql("ALTER TABLE t ADD COLUMN c INT; ALTER TABLE t DROP COLUMN b")
        shown = str(app.sql("SHOW CREATE TABLE t").rows()[0]["statement"])
    for text in (TABLE, f"{shown};", "create table T (id INT, a INT, c INT, PRIMARY KEY (id));", f"{shown};"):
        with App(text, state=tmp_path, _direct=True) as app:
            assert rows(app) == [(1, 2, None)]
    with pytest.raises(UpgradeNeeded, match='column "c" is dropped with its values, column "b" is added'):
        App(TABLE, state=tmp_path, _direct=True)


def test_a_renamed_table_is_found_by_both_texts(tmp_path: Path) -> None:
    with App(TABLE, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2, 'x')")
        table = app.table("t")
        app.sql("ALTER TABLE t RENAME TO u")
        assert table.get_record(1) == {"id": 1, "a": 2, "b": "x"} and table.name == "u"
        app.sql("INSERT INTO u VALUES (2, 3, 'y')")
        with pytest.raises(Error, match='"t"'):
            app.sql("SELECT * FROM t")
    for text in (TABLE, "CREATE TABLE u (id INT PRIMARY KEY, a INT, b STRING);"):
        with App(text, state=tmp_path, _direct=True) as app:
            assert rows(app, "SELECT * FROM u ORDER BY id") == [(1, 2, "x"), (2, 3, "y")]
            assert "t" not in [r["name"] for r in app.sql("SHOW TABLES").rows()]


@pytest.mark.parametrize("columns", ["b STRING", "a INT"])
def test_the_file_creates_the_old_name_again(columns: str, tmp_path: Path) -> None:
    text = f"""
        CREATE TABLE t (a INT); INSERT INTO t VALUES (1); ALTER TABLE t RENAME TO u;
        CREATE TABLE t ({columns}); INSERT INTO t SELECT 2;
    """
    for _ in range(3):
        with App(text, state=tmp_path, _direct=True) as app:
            assert rows(app, "SELECT * FROM u") == [(1,)] and rows(app) in ([("2",)], [(2,)])


def test_tables_that_swap_their_names(tmp_path: Path) -> None:
    text = (
        "CREATE TABLE a (x INT); INSERT INTO a VALUES (1); CREATE TABLE b (y INT); INSERT INTO b VALUES (2);"
    )
    with App(text, state=tmp_path, _direct=True) as app:
        app.sql("ALTER TABLE a RENAME TO c; ALTER TABLE b RENAME TO a; ALTER TABLE c RENAME TO b")
    for _ in range(2):
        with App(text, state=tmp_path, _direct=True) as app:
            assert rows(app, "SELECT * FROM a") == [(2,)] and rows(app, "SELECT * FROM b") == [(1,)]


def test_statements_of_the_file_run_once(tmp_path: Path) -> None:
    sql = f"{TABLE} INSERT INTO t VALUES (1, 2, 'x'); ALTER TABLE t ADD COLUMN c INT; UPDATE t SET c = a;"
    found = []
    for more in (
        "",
        "ALTER TABLE t DROP COLUMN b;",
        "ALTER TABLE t DROP COLUMN b; INSERT INTO t VALUES (9, 9, 9);",
    ):
        with App(sql + more, state=tmp_path, _direct=True) as app:
            found = rows(app)
    assert found == [(1, 2, 2), (9, 9, 9)]


@pytest.mark.parametrize("options", ["", "WITH ('max_memory' = '64MB')", "WITH (extension = 'cache')"])
def test_other_tables_in_memory(options: str) -> None:
    with App(f"CREATE TABLE t (id INT PRIMARY KEY, a INT, b STRING) {options};", _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2, 'x'), (2, 3, 'y')")
        app.sql(
            "ALTER TABLE t ADD COLUMN c INT; ALTER TABLE t DROP COLUMN a; ALTER TABLE t RENAME COLUMN b TO a"
        )
        app.sql("UPDATE t SET c = 5 WHERE id = 2")
        assert rows(app) == [(1, "x", None), (2, "y", 5)]


def test_tables_of_sqlite(tmp_path: Path) -> None:
    for extension in ("sqlite", "cache"):
        over = ", 'cache.over' = 'sqlite'" if extension == "cache" else ""
        sql = f"CREATE TABLE t (id INT PRIMARY KEY, a INT, b STRING) WITH (extension = '{extension}'{over});"
        state = tmp_path / extension
        with App(sql, state=state, _direct=True) as app:
            app.sql("INSERT INTO t VALUES (1, 2, 'x'), (2, 3, 'y')")
            assert rows(app, "SELECT id FROM t WHERE b = 'x'") == [(1,)]
            app.sql(
                "ALTER TABLE t ADD COLUMN c INT; ALTER TABLE t DROP COLUMN b; ALTER TABLE t RENAME COLUMN a TO b"
            )
            app.sql("UPDATE t SET c = 5 WHERE id = 2; ALTER TABLE t RENAME TO u")
            with pytest.raises(NotSupported, match="stored otherwise"):
                app.sql("ALTER TABLE u ALTER COLUMN c TYPE DOUBLE")
            assert rows(app, "SELECT * FROM u ORDER BY id") == [(1, 2, None), (2, 3, 5)]
        with App(sql, state=state, _direct=True) as app:
            assert rows(app, "SELECT * FROM u ORDER BY id") == [(1, 2, None), (2, 3, 5)]


def test_a_renamed_table_keeps_its_name_in_its_database(tmp_path: Path) -> None:
    text = "CREATE TABLE t (id INT PRIMARY KEY, a INT) WITH (extension = 'sqlite')"
    with App(f"{text};", state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2); ALTER TABLE t RENAME TO u")
        for again in (
            text,
            text.replace("'sqlite'", "'sqlite', 'table' = 'T'"),
            f"{text} AS SELECT * FROM u",
        ):
            with pytest.raises(AlreadyExists, match='"u" has its rows') as caught:
                app.sql(again)
            assert caught.value.place is not None and "'table'" in str(caught.value.hint)
        assert rows(app, "SELECT * FROM u") == [(1, 2)]
        app.sql(text.replace("'sqlite'", "'sqlite', 'table' = 't2'"))
        app.sql("INSERT INTO t VALUES (3, 4); DROP TABLE u")
        assert rows(app) == [(3, 4)]
        app.sql("CREATE TABLE w (id INT PRIMARY KEY) WITH (extension = 'sqlite', 'table' = 't')")


@pytest.mark.parametrize(("made", "error"), [(False, ConnectionLost("gone")), (True, KeyboardInterrupt())])
def test_a_change_that_the_database_did_not_confirm(
    made: bool, error: BaseException, tmp_path: Path, monkeypatch: Any
) -> None:
    text = "CREATE TABLE t (id INT PRIMARY KEY, a INT) WITH (extension = 'sqlite');"
    alter = SqliteTable.alter

    def lost(table: SqliteTable, change: TableChange) -> SqliteTable:
        if made:
            alter(table, change)
        raise error

    for number, again in enumerate(("statement", "start")):
        state = tmp_path / str(number)
        with App(text, state=state, _direct=True) as app:
            app.sql("INSERT INTO t VALUES (1, 2)")
            with monkeypatch.context() as patch:
                patch.setattr(SqliteTable, "alter", lost)
                with pytest.raises(type(error)):
                    app.sql("ALTER TABLE t RENAME COLUMN a TO b")
            for other in (
                "ADD COLUMN c INT",
                "RENAME TO u",
                "RENAME COLUMN a TO c",
                "SET ('on.conflict' = 'error')",
            ):
                with pytest.raises(NotSupported, match='column "a" of table "t" has begun') as caught:
                    app.sql(f"ALTER TABLE t {other}")
                assert caught.value.place is not None
            if again == "statement":
                app.sql("ALTER TABLE t RENAME COLUMN a TO b; ALTER TABLE t ADD COLUMN c INT")
        with App(text, state=state, _direct=True) as app:
            if again == "start":
                app.sql("ALTER TABLE t ADD COLUMN c INT")
            assert app.sql("SELECT * FROM t").rows() == [{"id": 1, "b": 2, "c": None}]


def test_a_transaction_that_began_before_conflicts() -> None:
    with App(TABLE, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2, 'x')")
        transaction = app.begin_transaction()
        transaction.sql("UPDATE t SET a = 3")
        app.sql("ALTER TABLE t ADD COLUMN c INT")
        assert transaction.sql("SELECT * FROM t").rows() == [{"id": 1, "a": 3, "b": "x"}]
        with pytest.raises(Conflict, match="new columns"):
            transaction.commit()
        assert rows(app) == [(1, 2, "x", None)]


def test_options_change(tmp_path: Path) -> None:
    with App(f"{TABLE} CREATE TABLE k (a INT);", state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t VALUES (1, 2, 'x')")
        app.sql("ALTER TABLE t SET ('on.conflict' = 'error', 'hot.records' = '10')")
        with pytest.raises(Error, match="is there already"):
            app.sql("INSERT INTO t VALUES (1, 3, 'y')")
        with pytest.raises(Error, match="no primary key"):
            app.sql("ALTER TABLE k SET ('on.conflict' = 'error')")
    again = App(f"{TABLE} CREATE TABLE k (a INT);", state=tmp_path, _direct=True)
    with again, pytest.raises(Error, match="is there already"):
        again.sql("INSERT INTO t VALUES (1, 3, 'y')")


@pytest.mark.parametrize("extension", ["memory", "cache"])
def test_the_memory_of_a_table_changes(extension: str, tmp_path: Path) -> None:
    more = "" if extension == "cache" else ", 'on.full' = 'error'"
    file = f"""
        CREATE TABLE t (id INT PRIMARY KEY, v STRING)
          WITH ('extension' = '{extension}', 'max_memory' = '100kB' {more});
        CREATE TABLE u (id INT PRIMARY KEY) WITH ('extension' = '{extension}');
    """
    rows = [{"id": i, "v": "x" * 100} for i in range(3_000)]
    with App(file, state=tmp_path, _direct=True) as app:
        with pytest.raises(Error, match="created without 'max_memory'"):
            app.sql("ALTER TABLE u SET ('max_memory' = '1MB')")
        if extension == "memory":
            with pytest.raises(Error, match="is full"):
                app.table("t").bulk_insert(rows)
        app.sql("ALTER TABLE t SET ('max_memory' = '100MB')")
        app.table("t").bulk_insert(rows)
        assert len(app.table("t")) == 3_000
    with App(file, state=tmp_path, _direct=True) as app:  # it is stored
        app.table("t").bulk_insert(rows)
        assert len(app.table("t")) == 3_000


def test_the_ttl_changes_and_its_column_stays(tmp_path: Path) -> None:
    sql = "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP) WITH ('ttl' = '1d', 'ttl.column' = 'at');"
    with App(sql + TABLE.replace("TABLE t", "TABLE u"), state=tmp_path, _direct=True) as app:
        for change in ("RENAME COLUMN at TO x", "DROP COLUMN at"):
            with pytest.raises(SqlError, match=r"ttl\.column"):
                app.sql(f"ALTER TABLE t {change}")
        app.sql("ALTER TABLE t SET ('ttl' = '7d')")
        relation = app._runtime.catalog.find("t")
        assert relation is not None and relation.ttl is not None and relation.ttl.seconds == 7 * 86_400
        with pytest.raises(SqlError, match="without 'ttl'"):
            app.sql("ALTER TABLE u SET ('ttl' = '7d')")


def test_a_new_column_of_a_table_with_many_rows() -> None:
    """Full blocks of rows share the cells of a new column: rows that change or come later do not change others."""
    count = SIZE + 100
    with App("CREATE TABLE t (id INT PRIMARY KEY, a INT)", _direct=True) as app:
        table = app.table("t")
        table.bulk_insert(
            pa.table({"id": pa.array(range(count), pa.int32()), "a": pa.nulls(count, pa.int32())})
        )
        before = app.sql("SELECT COUNT(*) AS n, COUNT(a) AS a FROM t").rows()
        assert table.get_record(1) == {"id": 1, "a": None}  # the index of keys is there, and counts
        size = app._runtime.store.backend("t").stats()["bytes"]
        added = {
            "b": ("INT DEFAULT 7", 7, 8),
            "c": ("STRING DEFAULT 'x'", "x", "y"),
            "d": ("DECIMAL(30, 2) DEFAULT 1.25", Decimal("1.25"), Decimal("-2.50")),
            "e": ("BOOLEAN DEFAULT true", True, False),
            "f": ("ARRAY<INT> DEFAULT array(1, 2)", [1, 2], [3]),
            "g": ("BIGINT", None, 9),
        }
        for name, (declared, *_) in added.items():
            app.sql(f"ALTER TABLE t ADD COLUMN {name} {declared}")
        assert app._runtime.store.backend("t").stats()["bytes"] < 2 * size
        other = {name: value for name, (_, _, value) in added.items()}
        changed = [0, 1000, SIZE - 2, SIZE - 1, SIZE, count - 1, count]
        for key in changed[:3]:
            table.update(f"id = {key}", other)
        table.bulk_insert([{"id": key, "a": None, **other} for key in changed[3:]])
        app.sql("DELETE FROM t WHERE id = 5")
        assert before == [{"n": count, "a": 0}]
        assert app.sql("SELECT b, c, d, e, f, g, COUNT(*) AS n FROM t GROUP BY ALL ORDER BY b").rows() == [
            {**{name: value for name, (_, value, _) in added.items()}, "n": count - 7},
            {**other, "n": 7},
        ]
        assert sorted(r["id"] for r in app.sql("SELECT id FROM t WHERE g = 9").rows()) == changed
        assert [table.find(id=key)[0] for key in (1, count)] == [
            {"id": 1, "a": None, **{name: value for name, (_, value, _) in added.items()}},
            {"id": count, "a": None, **other},
        ]
