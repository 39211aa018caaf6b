"""A statement of every kind, with what has to be there before: for tests that make them fail on the way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millpond import App
from millpond.sql import statements as st
from millpond.sql.parse import parse

SHOP = """
    CREATE STREAM orders (id INT, item STRING, n INT);
    CREATE STREAM other (id INT, item STRING, n INT);
    CREATE TABLE stock (item STRING PRIMARY KEY, n INT);
    CREATE TABLE log (id INT, item STRING);
    CREATE TABLE low AS SELECT item, n FROM stock WHERE n < 10;
    CREATE INDEX by_n ON stock (n);
    CREATE VIEW all_stock AS SELECT * FROM stock;
    CREATE STREAM big AS SELECT id, item FROM orders WHERE n > 5;
    INSERT INTO log SELECT id, item FROM orders WITH ('query.name' = 'logging');
    INSERT INTO stock VALUES ('apple', 5), ('pear', 20);
"""
LAKE = "CREATE TABLE kept (id INT) WITH ('extension' = 'delta', 'path' = '{dir}/lake'); INSERT INTO kept VALUES (1)"


@dataclass(frozen=True)
class Kind:
    """``before`` runs first; ``again`` says whether the statement can run a second time."""

    name: str
    sql: str
    before: str = ""
    again: bool = False


KINDS = [
    Kind("stream", "CREATE STREAM fresh (id INT, at TIMESTAMP)"),
    Kind("stream of files", "CREATE STREAM fresh WITH ('connector' = 'file://{dir}/rows/*.csv')"),
    Kind("derived stream", "CREATE STREAM fresh AS SELECT id + 1 AS id, item FROM orders"),
    Kind("stream of groups", "CREATE STREAM fresh AS SELECT item, SUM(n) AS n FROM orders GROUP BY item"),
    Kind("table", "CREATE TABLE fresh (id INT PRIMARY KEY, x STRING)"),
    Kind(
        "table in sqlite",
        "CREATE TABLE fresh (id INT PRIMARY KEY) WITH ('extension' = 'sqlite', 'path' = '{dir}/t.db')",
    ),
    Kind("table of a stream", "CREATE TABLE fresh (PRIMARY KEY (id)) AS SELECT id, item FROM orders"),
    Kind(
        "table of groups",
        "CREATE TABLE fresh AS SELECT item, COUNT(DISTINCT id) AS n FROM orders GROUP BY item",
    ),
    Kind("table of one group", "CREATE TABLE fresh AS SELECT COUNT(*) AS n FROM orders"),
    Kind(
        "table of groups in sqlite",
        "CREATE TABLE fresh AS SELECT item, SUM(n) AS n FROM orders GROUP BY item"
        " WITH ('extension' = 'sqlite', 'path' = '{dir}/t.db')",
    ),
    Kind(
        "table of joined streams",
        "CREATE TABLE fresh AS SELECT a.id, b.item FROM orders a JOIN other b ON a.id = b.id",
    ),
    Kind(
        "table of a stream and a file",
        "CREATE TABLE fresh AS SELECT o.id, f.x FROM orders o JOIN file://{dir}/one.csv f ON o.id = f.id",
    ),
    Kind("table of files", "CREATE TABLE fresh AS SELECT * FROM file://{dir}/rows/*.csv"),
    Kind(
        "table of files, once",
        "CREATE TABLE fresh AS SELECT * FROM file://{dir}/one.csv WITH ('refresh' = 'once')",
    ),
    Kind("table of tables", "CREATE TABLE fresh AS SELECT item, n * 2 AS twice FROM stock"),
    Kind(
        "table of a table and a file",
        "CREATE TABLE fresh AS SELECT s.item, f.x FROM stock s JOIN file://{dir}/one.csv f ON s.n = f.id",
    ),
    Kind("materialized view", "CREATE MATERIALIZED VIEW fresh AS SELECT COUNT(*) AS n FROM stock"),
    Kind("view", "CREATE VIEW fresh AS SELECT item FROM stock"),
    Kind("index", "CREATE INDEX fresh ON log (item)"),
    Kind("insert", "INSERT INTO stock VALUES ('fig', 3)", again=True),
    Kind("insert of rows of a table", "INSERT INTO log SELECT n, item FROM stock", again=True),
    Kind("insert into a stream", "INSERT INTO orders VALUES (1, 'apple', 7)", again=True),
    Kind("running insert", "INSERT INTO log SELECT id + 1, item FROM orders", again=True),
    Kind(
        "running insert with a name",
        "INSERT INTO log SELECT id, item FROM orders WITH ('query.name' = 'q 1: \"x\"')",
    ),
    Kind("running insert into a stream", "INSERT INTO other SELECT * FROM orders", again=True),
    Kind(
        "running insert that waits",
        "INSERT INTO log SELECT o.id, s.item FROM orders o JOIN stock s ON s.item = o.item WITH ('on.miss' = 'retry')",
        again=True,
    ),
    Kind("update", "UPDATE stock SET n = n + 1", again=True),
    Kind(
        "running update",
        "UPDATE stock SET n = stock.n - o.n FROM orders o WHERE o.item = stock.item",
        again=True,
    ),
    Kind("delete", "DELETE FROM stock WHERE n > 10", again=True),
    Kind("running delete", "DELETE FROM stock USING orders o WHERE o.item = stock.item", again=True),
    Kind(
        "merge",
        "MERGE INTO stock t USING (SELECT id AS n, item FROM log) s ON t.item = s.item"
        " WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (item, n) VALUES (s.item, s.n)",
        again=True,
    ),
    Kind(
        "running merge",
        "MERGE INTO stock t USING orders s ON t.item = s.item"
        " WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (item, n) VALUES (s.item, s.n)",
        again=True,
    ),
    Kind("upsert", "UPSERT INTO stock SELECT item, id FROM log ON stock.item = log.item", again=True),
    Kind(
        "running upsert",
        "UPSERT INTO stock SELECT item, n FROM orders ON stock.item = orders.item",
        again=True,
    ),
    Kind("truncate", "TRUNCATE TABLE stock", again=True),
    Kind(
        "transaction",
        "BEGIN; INSERT INTO stock VALUES ('fig', 3); DELETE FROM stock WHERE n < 4; COMMIT",
        again=True,
    ),
    Kind("rollback", "BEGIN; INSERT INTO stock VALUES ('fig', 3); ROLLBACK", again=True),
    Kind(
        "running block",
        "BEGIN; INSERT INTO log SELECT id, item FROM orders;"
        " UPDATE stock SET n = stock.n - o.n FROM orders o WHERE o.item = stock.item; COMMIT",
        again=True,
    ),
    Kind("select", "SELECT item, n FROM stock", again=True),
    Kind("select from a file", "SELECT * FROM file://{dir}/one.csv", again=True),
    Kind("running select", "SELECT id FROM orders", again=True),
    Kind("running select of groups", "SELECT item, COUNT(*) AS n FROM orders GROUP BY item", again=True),
    Kind("changes of a table", "SELECT item, n FROM stock EMIT CHANGES", again=True),
    Kind("stream of the changes of a table", "CREATE STREAM fresh AS SELECT item, n FROM stock EMIT CHANGES"),
    Kind(
        "changes of a table into a sink",
        "INSERT INTO file://{dir}/out SELECT item, n FROM stock EMIT CHANGES WITH ('format' = 'jsonl')",
        "INSERT INTO file://{dir}/first SELECT id FROM orders WITH ('format' = 'jsonl')",  # gives the app an identity
        again=True,
    ),
    Kind("drop stream", "DROP STREAM big"),
    Kind("drop stream with all", "DROP STREAM orders CASCADE"),
    Kind("drop table", "DROP TABLE log CASCADE"),
    Kind("drop table with all", "DROP TABLE stock CASCADE"),
    Kind(
        "drop table in sqlite",
        "DROP TABLE kept",
        "CREATE TABLE kept (id INT) WITH ('extension' = 'sqlite', 'path' = '{dir}/t.db'); INSERT INTO kept VALUES (1)",
    ),
    Kind(
        "drop table of files",
        "DROP TABLE loaded",
        "CREATE TABLE loaded AS SELECT * FROM file://{dir}/rows/*.csv",
    ),
    Kind(
        "drop table of groups",
        "DROP TABLE counted",
        "CREATE TABLE counted AS SELECT item, COUNT(*) AS n FROM orders GROUP BY item",
    ),
    Kind("drop view", "DROP VIEW all_stock"),
    Kind("drop materialized view", "DROP MATERIALIZED VIEW low"),
    Kind("drop index", "DROP INDEX by_n"),
    Kind("drop query", "DROP QUERY logging"),
    Kind("pause", "PAUSE QUERY logging"),
    Kind("pause of a view", "PAUSE QUERY low"),
    Kind("resume", "RESUME QUERY logging", "PAUSE QUERY logging"),
    Kind("stop", "STOP QUERY big"),
    Kind("start", "START QUERY logging", "STOP QUERY logging"),
    Kind("replay", "REPLAY `logging$errors`", again=True),
    Kind("show", "SHOW QUERIES", again=True),
    Kind("describe", "DESCRIBE EXTENDED stock", again=True),
    Kind("describe a file", "DESCRIBE file://{dir}/one.csv", again=True),
    Kind("history", "DESCRIBE HISTORY kept", LAKE, again=True),
    Kind("optimize", "OPTIMIZE kept", LAKE, again=True),
    Kind("vacuum", "VACUUM kept", LAKE, again=True),
    Kind("show create", "SHOW CREATE TABLE low", again=True),
    Kind(
        "explain",
        "EXPLAIN CREATE TABLE fresh AS SELECT item, SUM(n) AS n FROM orders GROUP BY item",
        again=True,
    ),
    Kind("analyzed change", "EXPLAIN ANALYZE UPDATE stock SET n = n + 1", again=True),
    Kind(
        "analyzed table",
        "EXPLAIN ANALYZE CREATE TABLE fresh AS SELECT item, COUNT(*) AS n FROM stock GROUP BY item",
    ),
    Kind("analyzed query", "EXPLAIN ANALYZE QUERY logging", again=True),
]
REFUSED = {st.AlterTable, st.ExplainUpgrade}
"""Statements that are parsed, and refused when they are checked."""


def by_name(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def make_files(directory: Path) -> None:
    (directory / "rows").mkdir(parents=True)
    (directory / "rows" / "a.csv").write_text("id,x\n1,one\n2,two\n")
    (directory / "one.csv").write_text("id,x\n5,five\n20,twenty\n")


def open_shop(directory: Path, kind: Kind) -> App:
    """An app with a state directory in which the statement can run. Statements move only when it is drained."""
    app = App(SHOP + kind.before.format(dir=directory), state=directory / "state", _direct=True)
    app.drain()
    return app


def classes_of(kind: Kind) -> set[type[st.Statement]]:
    """The classes of the statements of a kind."""
    found: set[type[st.Statement]] = set()
    for statement in parse(kind.sql.format(dir="/x")).require():
        found.add(type(statement))
        if isinstance(statement, st.Explain):
            found.add(type(statement.statement))
    return found
