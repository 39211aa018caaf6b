"""Tables in MariaDB: those that are there already, values that it cannot store, and others who write."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from millpond import App, Error
from millpond.changes import Changes
from millpond.errors import (
    AccessRefused,
    BadData,
    Conflict,
    ConnectionLost,
    InvalidOption,
    InvalidRecord,
    NotSupported,
    TypeMismatch,
    UnknownName,
)
from millpond.tables import Backend
from tests.contract.places import Places
from tests.servers import MariaDb, Servers, free_port


def create(url: str, columns: str, table: str = "t", name: str = "t", more: str = "") -> str:
    options = f"'extension' = 'mysql', 'url' = '{url}', 'table' = '{table}'{more}"
    return f"CREATE TABLE {name} ({columns}) WITH ({options});"


def test_a_table_that_is_there_is_used(servers: Servers) -> None:
    server = servers.mariadb
    url = server.new_database("crm")
    run = lambda sql: server.execute(sql, "crm")  # noqa: E731
    run(
        "CREATE TABLE users (id int PRIMARY KEY, `Name` varchar(10) NOT NULL, note text DEFAULT 'new', spent"
        " decimal(12,4), mail varchar(40) UNIQUE, seen timestamp(6) NULL, n int unsigned, CHECK (id < 1000))"
    )
    run("INSERT INTO users VALUES (1, 'Ann', 'keep me', 1.5, 'a@x', NULL, 1)")
    run("CREATE TABLE loose (k varchar(20) PRIMARY KEY, v int)")
    run("CREATE TABLE old (id int PRIMARY KEY) ENGINE = MyISAM")
    for columns, table, error, words in (
        ("id INT PRIMARY KEY, nmae STRING", "users", UnknownName, 'the table "users" in .* no column "nmae"'),
        ("id INT PRIMARY KEY, name INT", "users", TypeMismatch, '"name".*varchar'),
        ("id BIGINT PRIMARY KEY", "users", TypeMismatch, "int.*BIGINT"),
        ("id INT PRIMARY KEY, n INT", "users", TypeMismatch, "unsigned"),
        ("id INT PRIMARY KEY, spent DECIMAL(12,5)", "users", TypeMismatch, "decimal"),
        ("id INT, name STRING PRIMARY KEY", "users", NotSupported, "not unique"),
        ("id INT, name STRING", "users", NotSupported, "primary key"),
        ("k STRING PRIMARY KEY, v INT", "loose", NotSupported, "collation .* different texts are equal"),
        ("id INT PRIMARY KEY", "old", NotSupported, "MyISAM, which has no transactions"),
    ):
        with App() as app, pytest.raises(error, match=words) as caught:
            app.sql(create(url, columns, table))
        assert caught.value.hint
    declared = "id INT PRIMARY KEY, name STRING, spent DECIMAL(10,2), mail STRING, seen TIMESTAMP"
    with App(create(url, declared, "crm.users")) as app:
        users = app.table("t")
        assert users.get_record(1)["name"] == "Ann"
        app.sql("UPDATE t SET name = upper(name), seen = TIMESTAMP '2024-05-06 07:08:09.000001'")
        app.sql("INSERT INTO t VALUES (2, 'Bob', 2, 'b@x', NULL), (0, 'Nul', 0, 'C@x ', NULL)")
        assert run("SELECT id, `Name`, note, seen FROM users ORDER BY id") == [
            (0, "Nul", "new", None),
            (1, "ANN", "keep me", datetime(2024, 5, 6, 7, 8, 9, 1)),
            (2, "Bob", "new", None),
        ]
        # What compares loosely there is compared exactly here.
        assert [r["id"] for r in users.find("mail = 'C@x '")] == [0] and users.find("mail = 'c@x'") == []
        assert [r["id"] for r in users.find("name != 'BOB' AND name > 'BZ'")] == [0, 2]
        found = users.find_rows_for_join("mail", ["a@x", "A@X", "b@x "])
        assert [r["id"] for r in found] == [1]
        # A row with another's unique value replaces neither.
        for rows in ([{"id": 3, "name": "x", "mail": "b@x"}], [{"id": 1, "name": "x", "mail": "b@x"}]):
            with pytest.raises(InvalidRecord, match="Duplicate entry"):
                users.bulk_insert(rows)
        with pytest.raises(InvalidRecord, match="refuses a row"):
            users.insert({"id": 3})
        with pytest.raises(InvalidRecord, match="CONSTRAINT"):
            users.bulk_insert([{"id": 4, "name": "x"}, {"id": 5000, "name": "y"}])
        with pytest.raises(InvalidRecord, match="too long"):
            users.insert({"id": 5, "name": "longer than ten"})
        assert len(users) == 3
        run("UPDATE users SET spent = 1.2345 WHERE id = 1")
        with pytest.raises(BadData, match=r'"spent".*DECIMAL'):
            users.all_rows()
        run("ALTER TABLE users DROP COLUMN spent")
        with pytest.raises(UnknownName, match="spent"):
            users.all_rows()
        app.sql("DROP TABLE t")
    assert run("SELECT count(*) FROM users") == [(3,)]


def test_texts_are_keys_byte_by_byte_and_not_too_long(servers: Servers) -> None:
    url = servers.mariadb.new_database("texts")
    with App(create(url, "k STRING PRIMARY KEY, b BINARY, v STRING")) as app:
        table = app.table("t")
        keys = ["a", "A", "á", "a ", "a\0", "", " ", "ž🐎", "%s", "'\\\"`", "x" * 768]
        table.bulk_insert([{"k": k, "b": k.encode(), "v": k * 3} for k in keys])
        assert sorted(r["k"] for r in table.all_rows()) == sorted(keys)
        for k in keys:
            assert table.get_record(k) == {"k": k, "b": k.encode(), "v": k * 3}
            quoted = k.replace("\\", "\\\\").replace("'", "\\'")
            assert [r["k"] for r in app.sql(f"SELECT k FROM t WHERE v = '{quoted * 3}'").rows()] == [k]
        assert table.bulk_delete(["a ", "A"]) == 2 and len(table) == len(keys) - 2
        with pytest.raises(InvalidRecord, match=r'row 1 .*"k" is longer than 768 characters') as caught:
            table.bulk_insert([{"k": "fine"}, {"k": "x" * 769}])
        assert caught.value.row == 1 and caught.value.field == "k"
        assert not table.contains("fine") and not table.contains("x" * 800)


def test_values_that_cannot_be_stored_are_errors_of_the_row(servers: Servers) -> None:
    url = servers.mariadb.new_database("values_refused")
    text = create(url, "id INT PRIMARY KEY, f FLOAT, d DOUBLE, s STRING")
    with App(text + "CREATE STREAM s (id INT, d DOUBLE); INSERT INTO t (id, d) SELECT id, d FROM s;") as app:
        table = app.table("t")
        for value in (float("nan"), float("inf"), float("-inf")):
            for name in ("f", "d"):
                with pytest.raises(InvalidRecord, match=rf'row 1 .*"{name}" is NaN or infinite') as caught:
                    table.bulk_insert([{"id": 1, "d": 1.5}, {"id": 2, name: value}])
                assert caught.value.row == 1
        most = servers.mariadb.execute("SELECT @@max_allowed_packet")[0][0]
        with pytest.raises(InvalidRecord, match="takes statements of") as large:
            table.insert({"id": 1, "s": "x" * most})
        assert "max_allowed_packet" in str(large.value.hint)
        assert len(table) == 0 and table.find("d > 'NaN'") == []
        table.bulk_insert(
            [{"id": i, "s": "y" * (most // 20)} for i in range(60)]
        )  # more than one statement takes
        assert len(table) == 60
        keys = [f"{i}{'y' * (most // 20)}" for i in range(30)]  # nor does one take as many keys
        assert table.find_rows_for_join("s", keys) == []
        app.send("s", [{"id": 100, "d": 1.0}, {"id": 101, "d": float("nan")}, {"id": 102, "d": 2.0}])
        app.drain()
        assert [r["id"] for r in table.find("id >= 100")] == [100, 102]


def test_failures_are_told_apart_and_show_no_password(servers: Servers) -> None:
    server = servers.mariadb
    server.new_database("failures")
    server.execute("CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'hunter2'")
    server.execute("GRANT SELECT ON failures.* TO reader@'127.0.0.1'")
    at = f"127.0.0.1:{server.port}"
    for url, error in (
        (f"mysql://me:hunter2@127.0.0.1:{free_port()}/x", ConnectionLost),
        (f"mysql://millpond:hunter2@{at}/failures", AccessRefused),
        (f"mysql://reader:hunter2@{at}/failures", AccessRefused),
        (server.url("nowhere", password="pond"), UnknownName),
        (f"mysql://millpond:hunter2@{at}", InvalidOption),
        (f"mysql://millpond:hunter2@{at}/failures?sslmode=x", InvalidOption),
    ):
        with App() as app, pytest.raises(error) as caught:
            app.sql(create(url, "id INT PRIMARY KEY", more=", 'retry.timeout' = '0s'"))
        assert "hunter2" not in str(caught.value) and caught.value.hint


def test_a_live_aggregate_has_groups_of_null(servers: Servers) -> None:
    options = f"'extension' = 'mysql', 'url' = '{servers.mariadb.new_database('groups_of_null')}'"
    text = f"""
        CREATE STREAM s (a STRING, b INT, n DECIMAL(20,2));
        CREATE TABLE g WITH ({options}) AS SELECT a, b, COUNT(*) AS c, SUM(n) AS s FROM s GROUP BY a, b;
        CREATE TABLE names (id INT PRIMARY KEY, name STRING) WITH ({options});
        CREATE TABLE named (n DECIMAL(20,2), name STRING) WITH ({options});
        INSERT INTO names VALUES (1, 'one'), (2, 'two');
        INSERT INTO named SELECT s.n, names.name FROM s JOIN names ON s.b = names.id;
    """
    chance, sums = random.Random(4), dict[Any, list[Any]]()
    with App(text) as app:
        for _ in range(5):
            rows = [
                {
                    "a": chance.choice([None, "", "x", "X", "y" * 900]),
                    "b": chance.choice([None, 1, 2]),
                    "n": n,
                }
                for n in (Decimal(chance.randrange(10**6)) / 100 for _ in range(40))
            ]
            app.send("s", rows)
            for r in rows:
                sums.setdefault((r["a"], r["b"]), []).append(r["n"])
        app.drain()
        found = {(r["a"], r["b"]): (r["c"], r["s"]) for r in app.table("g").all_rows()}
        assert found == {key: (len(ns), sum(ns)) for key, ns in sums.items()}
        assert app.table("g").sql_scalar("COUNT(*)", "a IS NULL") == sum(a is None for a, _ in sums)
        expected = sorted(n for (_, b), ns in sums.items() if b is not None for n in ns)
        assert sorted(r["n"] for r in app.table("named").all_rows()) == expected


def test_random_changes_make_the_rows_of_a_table_in_memory(servers: Servers) -> None:
    columns = "a INT, k STRING, d DECIMAL(12,2), at TIMESTAMP, xs ARRAY<INT>, PRIMARY KEY (a, k)"
    url = servers.mariadb.new_database("random_changes")
    statements = (
        "INSERT INTO {t} VALUES ({a}, '{k}', {d}, TIMESTAMP '2024-01-01 00:00:00.00000{a}', array({a}, NULL))",
        "UPDATE {t} SET d = d * 2, xs = array(a) WHERE a < {a} AND k >= '{k}'",
        "UPDATE {t} SET k = concat(k, '+') WHERE a = {a} AND k = '{k}'",
        "DELETE FROM {t} WHERE d > {d} OR (a, k) IN (SELECT {a}, '{k}')",
        "MERGE INTO {t} USING (SELECT {a} AS a, '{k}' AS k) s ON {t}.a = s.a AND {t}.k = s.k WHEN MATCHED THEN"
        " UPDATE SET d = {d} WHEN NOT MATCHED THEN INSERT (a, k, d) VALUES (s.a, s.k, {d})",
        "BEGIN; DELETE FROM {t} WHERE a = {a}; INSERT INTO {t} (a, k) VALUES ({a}, '{k} '); COMMIT",
    )
    chance = random.Random(9)
    with App(f"CREATE TABLE m ({columns});" + create(url, columns)) as app:
        for _ in range(25):
            given = {"a": chance.randrange(5), "k": chance.choice("aAb"), "d": chance.randrange(5000) / 100}
            text = chance.choice(statements)
            for name in ("m", "t"):
                app.sql(text.format(t=name, **given))
            query = "SELECT * FROM {} ORDER BY a, k"
            assert app.sql(query.format("t")).rows() == app.sql(query.format("m")).rows(), text
        assert len(app.table("t")) > 3


def test_others_who_write_are_neither_lost_nor_overwritten(servers: Servers) -> None:
    """Deadlocks and locks that others hold are waited for; what was read before another's change is read again."""
    server = servers.mariadb
    url = server.new_database("others_write")
    with App(create(url, "id INT PRIMARY KEY, n INT")) as app:
        table = app.table("t")
        table.bulk_insert([{"id": i, "n": 0} for i in range(4)])
        assert table.find("n = 0") == table.all_rows()
        done = {"here": 0, "there": 0}

        def here() -> None:
            for _ in range(25):
                app.sql("UPDATE t SET n = n + 1")
                done["here"] += 1

        def there() -> None:
            chance = random.Random(1)
            with server.connect("others_write") as connection, connection.cursor() as cursor:
                while done["here"] < 25 and done["there"] < 100:
                    ids = chance.sample(range(4), 2)
                    try:
                        cursor.execute("START TRANSACTION")
                        for i in ids:
                            cursor.execute("UPDATE t SET n = n + 1 WHERE id = %s", (i,))
                        cursor.execute("COMMIT")
                        done["there"] += 1
                    except pymysql.err.OperationalError as error:
                        assert error.args[0] in (1213, 1205)
                        cursor.execute("ROLLBACK")

        threads = [threading.Thread(target=work) for work in (here, there)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        total = 4 * done["here"] + 2 * done["there"]
        assert done["here"] == 25 and sum(r["n"] for r in table.all_rows()) == total
        server.execute("UPDATE others_write.t SET n = -1")
        assert {r["n"] for r in app.sql("SELECT n FROM t").rows()} == {-1}
        first = app.begin_transaction()
        first.sql("UPDATE t SET n = n + 1 WHERE id = 1")
        server.execute("UPDATE others_write.t SET n = 7 WHERE id = 1")
        with pytest.raises(Conflict):
            first.commit()


def test_an_index_that_is_younger_than_a_snapshot(servers: Servers, places: Places) -> None:
    """A snapshot goes on without it; and one that has read the table is not waited for."""
    url = servers.mariadb.new_database("young_index")
    with App(create(url, "id INT PRIMARY KEY, s STRING, n INT")) as app:
        table = app.table("t")
        table.bulk_insert([{"id": i, "s": f"s{i % 50}", "n": i % 50} for i in range(2_000)])
        backend: Backend = table._backend
        before = backend.snapshot()
        table.insert({"id": -1, "s": "s7", "n": 7})
        wanted = pa.table({"s": ["s7"]})
        assert before.get(["s"], wanted).num_rows == 40  # the index is made here
        assert backend.get(["s"], wanted).num_rows == 41
        assert backend.get(["n"], pa.table({"n": [7]})).num_rows == 41  # none can be made now, at once
        del before
        began = backend.snapshot()
        assert backend.get(["n"], pa.table({"n": [7]})).num_rows == 41
        assert len(began) == 2_001
        del began
        names = servers.mariadb.execute(
            "SELECT count(DISTINCT index_name) FROM information_schema.statistics WHERE table_schema = 'young_index'"
            " AND table_name = 't'"
        )
        assert names == [(3,)]
        app.sql("CREATE INDEX i ON t (n, s); DROP INDEX i")
        held = backend.snapshot()
        assert len(held) == 2_001
        backend.apply(Changes(pa.table({"id": pa.array([-1], pa.int32())}), pa.array([True])))
        assert len(held) == 2_001 and len(backend) == 2_000


def test_the_url_has_options(servers: Servers) -> None:
    """What the URL may have, and what it may not."""
    url = servers.mariadb.new_database("options_url").replace("mysql://", "mariadb://")
    with App(create(url + "?ssl.mode=disable&socket.timeout=30s", "id INT PRIMARY KEY")) as app:
        app.sql("INSERT INTO t VALUES (1)")
        assert ":pond@" not in str(app.sql("SHOW CREATE TABLE t").rows())
        assert app.table("t").health_check().status == "healthy"
    with App() as app, pytest.raises(Error, match="64 characters"):
        app.sql(create(url, "id INT PRIMARY KEY", table="n" * 65))


def test_a_table_is_created_by_millpond_if_it_says_so(servers: Servers) -> None:
    """Names that are left in Millpond's table, and copies of its tables, do not make tables of others its own."""
    server = servers.mariadb
    url = server.new_database("whose")
    run = lambda sql: server.execute(sql, "whose")  # noqa: E731
    with App(create(url, "n INT")) as app:
        app.sql("INSERT INTO t VALUES (1), (2), (3)")
        run("DELETE FROM millpond_tables")
    with App(create(url, "n INT", "whose.t")) as app:
        app.sql("INSERT INTO t VALUES (4)")
        assert [r["n"] for r in app.table("t").all_rows()] == [1, 2, 3, 4]
        run("CREATE TABLE copy LIKE t")
    with App(create(url, "id INT PRIMARY KEY", "k")) as app:
        run("DROP TABLE k")
        run("CREATE TABLE k (id int PRIMARY KEY)")
    with App(create(url, "id INT PRIMARY KEY", "k")) as app:
        app.sql("DROP TABLE t")
        assert run("SELECT * FROM k") == []
        with pytest.raises(NotSupported, match="not unique"):
            app.sql(create(url, "n INT", "copy"))
    with App(create(url, "n INT")) as app:
        app.sql("DROP TABLE t")
        with pytest.raises(NotSupported, match="millpond_key"):
            app.sql(
                f"CREATE STREAM s (millpond_key INT); CREATE TABLE g WITH ('extension' = 'mysql', 'url' = '{url}')"
                " AS SELECT millpond_key, COUNT(*) AS c FROM s GROUP BY millpond_key"
            )
    assert run("SHOW TABLES LIKE 't'") == []


def test_a_unique_index_that_others_add_is_respected(servers: Servers) -> None:
    url = servers.mariadb.new_database("added_unique")
    declared = create(url, "id INT PRIMARY KEY, n INT")
    with App(declared) as app:
        app.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    servers.mariadb.execute("CREATE UNIQUE INDEX u ON t (n)", "added_unique")
    with App(declared) as app:
        with pytest.raises(InvalidRecord, match="Duplicate entry"):
            app.table("t").bulk_insert([{"id": 3, "n": 2}])
        assert len(app.table("t")) == 2


def test_the_position_is_read_on_a_connection_that_nobody_else_has(servers: Servers) -> None:
    with App(create(servers.mariadb.new_database("own_connection"), "id INT PRIMARY KEY")) as app:
        backend: Any = app.table("t")._backend
        database, seen = backend.database, []
        known = database.known_position

        def watched(session: Any, pipeline: str) -> Any:
            seen.append(session._connection in database._idle[0])
            return known(session, pipeline)

        database.known_position = watched
        assert database.position("p") is None and seen == [False]


@pytest.fixture(scope="module")
def folding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """A server that ignores the case of names, and does not log one database."""
    server = MariaDb(Path(tmp_path_factory.mktemp("m")) / "f")
    try:
        server.stop()
        server.start("--lower-case-table-names=1", "--binlog-ignore-db=other")
        yield server
    finally:
        server.stop()


def test_names_ignore_case_where_the_server_does(folding: MariaDb) -> None:
    url = folding.new_database("Folding")
    folding.execute("CREATE TABLE users (id int PRIMARY KEY)", "folding")
    with App(create(url, "id INT PRIMARY KEY", "Folding.Users") + create(url, "n INT", "Mine", "m")) as app:
        app.sql("INSERT INTO t VALUES (1); INSERT INTO m VALUES (1), (2); DROP TABLE t")
    assert folding.execute("SELECT id FROM folding.users") == [(1,)]
    with App(create(url, "n INT", "mINE", "m")) as app:
        app.sql("INSERT INTO m VALUES (3)")
        assert [r["n"] for r in app.table("m").all_rows()] == [1, 2, 3]
        assert not app.table("m")._backend.database.exact  # the log has a filter
        app.sql("DROP TABLE m")
    assert folding.execute("SHOW TABLES LIKE 'm%e'", "folding") == []


def test_a_server_that_is_read_only_for_a_moment_is_waited_for(folding: MariaDb) -> None:
    folding.new_database("failover")
    folding.execute("CREATE USER app@'127.0.0.1' IDENTIFIED BY 'pond'")
    folding.execute("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON failover.* TO app@'127.0.0.1'")
    with App(create(folding.url("failover", "app"), "id INT PRIMARY KEY, n INT")) as app:
        folding.execute("SET GLOBAL read_only = 1")
        later = threading.Timer(1, lambda: folding.execute("SET GLOBAL read_only = 0"))
        later.start()
        app.sql("INSERT INTO t VALUES (1, 2)")
        later.join()
        backend: Any = app.table("t")._backend
        for _ in range(2):  # the user may not create indexes
            assert backend.get(["n"], pa.table({"n": pa.array([2], pa.int32())})).num_rows == 1
        assert backend.refused == {("n",)} and not backend.indexed
