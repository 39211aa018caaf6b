"""DEFAULT of columns: a constant that rows have if they are given no value."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from pathlib import Path

import pytest

from millpond import App
from millpond.app.check import check_text
from millpond.errors import SqlError

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 2 + 3, b STRING NOT NULL DEFAULT 'x''y');"


def rows(app: App, sql: str = "SELECT * FROM t ORDER BY 1") -> list[tuple[object, ...]]:
    return [tuple(r.values()) for r in app.sql(sql).rows()]


@pytest.mark.parametrize("extension", ["memory", "sqlite"])
def test_statements_take_it(extension: str, tmp_path: Path) -> None:
    sql = (
        TABLE.replace(";", f" WITH (extension = '{extension}');")
        + "CREATE TABLE s (id INT PRIMARY KEY, n INT);"
    )
    with App(sql, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO s VALUES (1, 1), (6, 6)")
        app.sql("INSERT INTO t (id) VALUES (1)")
        app.sql("INSERT INTO t VALUES (2, DEFAULT, 'z'), (3, NULL, DEFAULT)")
        app.sql("INSERT INTO t VALUES (4), (5)")
        app.sql("INSERT INTO t SELECT 7")
        app.sql("INSERT INTO t (b, id) SELECT 'q', 8")
        app.sql("UPDATE t SET a = 9 WHERE id = 4; UPDATE t SET a = DEFAULT, b = DEFAULT WHERE id = 2")
        app.sql(
            "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = DEFAULT"
            " WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, DEFAULT)"
        )
        found = [(n, 5, "x'y") for n in range(1, 9)]
        found[2], found[3], found[7] = (3, None, "x'y"), (4, 9, "x'y"), (8, 5, "q")
        assert rows(app) == found
    with App(sql, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t (id) VALUES (9)")
        assert rows(app) == [*found, (9, 5, "x'y")]


@pytest.mark.parametrize("extension", ["memory", "sqlite"])
def test_old_rows_have_the_default_of_a_new_column(extension: str, tmp_path: Path) -> None:
    sql = f"CREATE TABLE t (id INT PRIMARY KEY) WITH (extension = '{extension}'); CREATE STREAM e (id INT);"
    sql += "INSERT INTO t SELECT id FROM e;"
    with App(sql, state=tmp_path, _direct=True) as app:
        app.send("e", [{"id": 1}])
        app.drain()
        app.sql("ALTER TABLE t ADD COLUMN a DECIMAL(5,2) NOT NULL DEFAULT 1.5")
        app.sql("ALTER TABLE t ADD COLUMN d DATE DEFAULT '2024-02-29'")
        app.send("e", [{"id": 2}])
        app.drain()
        found = [(n, Decimal("1.50"), datetime.date(2024, 2, 29)) for n in (1, 2)]
        assert rows(app) == found
        shown = str(app.sql("SHOW CREATE TABLE t").rows()[0]["statement"])
    for text in (sql, f"{shown}; {sql.partition(';')[2]}"):
        with App(text, state=tmp_path, _direct=True) as app:
            assert rows(app) == found
            app.send("e", [{"id": 2}])
            app.drain()
            assert rows(app) == found


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE u (a INT, b INT DEFAULT a)", "not a constant"),
        ("CREATE TABLE u (a INT DEFAULT (SELECT 1))", "not a constant"),
        ("CREATE TABLE u (a INT DEFAULT COUNT(1))", "not a constant"),
        ("CREATE TABLE u (a DOUBLE DEFAULT rand())", "another value each time"),
        ("CREATE TABLE u (a INT DEFAULT 'x')", "is STRING"),
        ("CREATE TABLE u (a INT DEFAULT 1) AS SELECT id AS a FROM t", "a query fills"),
        ("CREATE STREAM u (a INT DEFAULT 1)", "stream"),
        ("ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT NULL", "NOT NULL"),
        ("ALTER TABLE t ADD COLUMN c INT DEFAULT nope(1)", "nope"),
        ("ALTER TABLE t ALTER COLUMN b SET DEFAULT NULL", "NOT NULL"),
        ("ALTER TABLE t ALTER COLUMN a SET DEFAULT 'x'", "is STRING"),
        ("ALTER TABLE t ALTER COLUMN a SET DEFAULT 3000000000", "out of the range|is BIGINT"),
        ("ALTER TABLE t ALTER COLUMN nope SET DEFAULT 1", "nope"),
        ("INSERT INTO t VALUES (1, 2, 3, 4)", "4 columns"),
        *(
            (f"{declare} {column}{end}", message)
            for declare, end in (("CREATE TABLE u (a INT, c", ")"), ("ALTER TABLE t ADD COLUMN c", ""))
            for column, message in (
                ("INT NOT NULL DEFAULT nullif(1, 1)", "NOT NULL"),
                ("TINYINT DEFAULT 300", "out of the range"),
                ("DATE DEFAULT 'no'", "cannot cast 'no' to DATE"),
                ("FLOAT DEFAULT 1e40", "out of the range of FLOAT"),
                ("DECIMAL(3,2) DEFAULT 12.345", "out of the range"),
                ("INT DEFAULT 1 / 0", "division by zero"),
            )
        ),
    ],
)
def test_mistakes(statement: str, message: str) -> None:
    if not statement.startswith("INSERT"):
        assert [e for e in check_text(TABLE + statement).errors if re.search(message, str(e))], statement
    with App(TABLE, _direct=True) as app:
        with pytest.raises(SqlError, match=message) as caught:
            app.sql(statement)
        assert caught.value.place is not None and caught.value.column != 1
        assert app.sql("SHOW TABLES").rows()[1:] == [] and app.table("t").schema.names == ("id", "a", "b")


@pytest.mark.parametrize("extension", ["memory", "sqlite"])
def test_the_default_of_a_column_changes(extension: str, tmp_path: Path) -> None:
    sql = f"""
        CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 5, b STRING) WITH (extension = '{extension}');
        CREATE STREAM e (id INT); INSERT INTO t (id) SELECT id FROM e;
        CREATE MATERIALIZED VIEW m AS SELECT * FROM t;
    """
    with App(sql, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t (id) VALUES (1)")
        app.sql("ALTER TABLE t ALTER COLUMN a SET DEFAULT 6; ALTER TABLE t ALTER b SET DEFAULT 'x'")
        app.sql("INSERT INTO t (id) VALUES (2)")
        app.send("e", [{"id": 3}])
        app.drain()
        app.sql("ALTER TABLE t ALTER COLUMN a DROP DEFAULT; INSERT INTO t (id) VALUES (4)")
        app.send("e", [{"id": 5}])
        app.drain()
        found = [(1, 5, None), (2, 6, "x"), (3, 6, "x"), (4, None, "x"), (5, None, "x")]
        assert rows(app) == found
        assert "DEFAULT 'x'" in str(app.sql("SHOW CREATE TABLE t").rows())
        new = f"(id INT PRIMARY KEY, a INT DEFAULT 7, b STRING DEFAULT 'x') WITH (extension = '{extension}')"
        app.sql(f"CREATE OR REPLACE TABLE t {new}; INSERT INTO t (id) VALUES (6)")
        app.drain()
        found.append((6, 7, "x"))
        assert rows(app) == found
    with App(sql, state=tmp_path, _direct=True) as app:
        app.sql("INSERT INTO t (id) VALUES (7)")
        app.drain()
        assert rows(app) == [*found, (7, 7, "x")]
        assert len(rows(app, "SELECT * FROM m")) == 7
