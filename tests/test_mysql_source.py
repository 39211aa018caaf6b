"""Tables of MariaDB as sources: logins, errors, names that are quoted, readers side by side, tables that follow."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.errors import (
    AuthenticationIssue,
    ConfigurationIssue,
    ConnectionLost,
    DatabaseMissing,
    Error,
    InvalidOption,
    PrivilegeMissing,
    SourceError,
    TableMissing,
    TimedOut,
    UnknownName,
)
from tests.mysql_tables import source, table_of
from tests.servers import MariaDb, Servers, free_port


@pytest.fixture(scope="module")
def server(servers: Servers) -> MariaDb:
    return servers.mariadb


@pytest.fixture
def home(server: MariaDb) -> Iterator[str]:
    name = f"d{uuid.uuid4().hex[:8]}"
    server.new_database(name)
    server.execute("CREATE TABLE t (id int PRIMARY KEY, who varchar(20), amount decimal(10, 2))", name)
    server.execute("INSERT INTO t VALUES (1, 'ann', 1.50), (2, 'bob', 2.00), (3, NULL, NULL)", name)
    yield name
    server.execute(f"DROP DATABASE IF EXISTS {name}")


def ids(read: Any) -> list[int]:
    return sorted(table_of(read).column("id").to_pylist())


def wait_for(seen: Any) -> None:
    deadline = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# errors


def test_failures_are_told_apart_and_show_no_password(server: MariaDb, home: str) -> None:
    server.execute("CREATE OR REPLACE USER nobody@'localhost' IDENTIFIED BY 'x'")
    secret = "pa55:w@rd/é"
    wrong: list[tuple[type[Error], str, dict[str, Any]]] = [
        (AuthenticationIssue, "username", {"password": secret}),
        (DatabaseMissing, "SHOW DATABASES", {"database": "nowhere"}),
        (TableMissing, 'did you mean "t"?', {"table": "t1"}),
        (PrivilegeMissing, "GRANT SELECT ON", {"user": "nobody", "password": "x"}),
        (UnknownName, "names of columns", {"table": None, "query": "SELECT nothing FROM t"}),
        (SourceError, "'query', 'where'", {"table": None, "query": "SELECT ROUND() AS a"}),
        (ConfigurationIssue, "ssl.mode", {"ssl_mode": "require"}),
        (ConfigurationIssue, "", {"ssl_ca": "/nowhere.pem"}),
    ]
    for kind, hint, given in wrong:
        options = {"database": home, "table": "t", **given}
        with pytest.raises(kind) as raised:
            source(server, options.pop("database"), options.pop("table"), **options).schema()
        assert type(raised.value) is kind and hint in (raised.value.hint or "")
        assert secret not in str(raised.value) and f"'{home}'" not in (raised.value.hint or "")
    server.port, port = free_port(), server.port
    try:
        with pytest.raises(ConnectionLost, match="Can't connect"):
            source(server, home, "t", retry_timeout="0s").schema()
    finally:
        server.port = port


def test_a_password_with_any_letter_logs_in(server: MariaDb, home: str) -> None:
    server.execute(r"CREATE OR REPLACE USER odd@'localhost' IDENTIFIED BY 'p:/?#[]@\'\" é%'")
    server.execute(f"GRANT SELECT ON {home}.* TO odd@'localhost'")
    assert ids(source(server, home, "t", user="odd", password="p:/?#[]@'\" é%")) == [1, 2, 3]


def test_what_takes_too_long_is_ended(server: MariaDb, home: str) -> None:
    read = source(server, home, query="SELECT SLEEP(20) AS a", query_timeout="100ms", retry_timeout="0s")
    with pytest.raises(TimedOut, match="max_statement_time") as raised:
        table_of(read)
    assert raised.value.retryable
    read = source(server, home, query="SELECT SLEEP(2) AS a", socket_timeout="300ms", retry_timeout="0s")
    with pytest.raises(TimedOut, match="timed out") as raised:
        table_of(read)
    assert "'socket.timeout'" in str(raised.value.hint)


def test_a_connection_that_is_cut_while_rows_come_is_told(server: MariaDb, home: str) -> None:
    server.execute("CREATE TABLE big AS SELECT seq AS id, REPEAT('x', 1000) AS a FROM seq_1_to_50000", home)
    read = source(server, home, "big", fetch_size="100", prefetch_count="1")
    (split,) = read.splits(None, read.latest(None))
    batches = read.read(split)
    next(batches)
    for (found,) in server.execute(
        f"SELECT id FROM information_schema.processlist WHERE db = '{home}' AND id <> CONNECTION_ID()"
    ):
        server.execute(f"KILL {found}")
    with pytest.raises(ConnectionLost):
        list(batches)
    read.close()


def test_rows_that_are_not_read_to_their_end_leave_no_connection_behind(server: MariaDb, home: str) -> None:
    server.execute("CREATE TABLE big AS SELECT seq AS id, REPEAT('x', 1000) AS a FROM seq_1_to_20000", home)
    read = source(server, home, "big", fetch_size="100")
    for _ in range(3):
        (split,) = read.splits(None, read.latest(None))
        batches = read.read(split)
        next(batches)
        batches.close()  # type: ignore[attr-defined]
    assert len(ids(source(server, home, "big"))) == 20_000
    read.close()
    asked = f"SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{home}'"
    wait_for(lambda: server.execute(asked) == [(0,)])


# names and texts


NASTY = ["a`b", "x; DROP TABLE t", "`; DROP TABLE t; --", "%s %(x)s %%", "a:b é 水"]


def test_names_are_quoted_wherever_they_come_from(server: MariaDb, home: str) -> None:
    for name in NASTY:
        quoted = "`" + name.replace("`", "``") + "`"
        server.execute(f"CREATE TABLE {quoted} (id int PRIMARY KEY, {quoted} int)".replace("%", "%"), home)
        server.execute(f"INSERT INTO {quoted} VALUES (1, 2), (3, 4)", home)
        found = table_of(source(server, home, name, schema=home)).to_pylist()
        assert found == [{"id": 1, name: 2}, {"id": 3, name: 4}]
        polled = source(server, home, name, schema=home, poll_interval="1s", incremental_column=name)
        assert ids(polled) == [1, 3]
    assert ids(source(server, home, "t")) == [1, 2, 3]


def test_options_that_would_do_something_else_are_refused(server: MariaDb, home: str) -> None:
    for options in (
        {"table": "t; DROP TABLE t"},
        {"table": "t` WHERE 1=0; DROP TABLE t; -- "},
        {"schema": f"{home}`.t; DROP TABLE t; -- ", "table": "t"},
        {"table": "t", "where": "1 = 1; DROP TABLE t"},
        {"table": "t", "where": "1 = 1) UNION SELECT 1, 2, 3 -- "},
        {"table": "t", "order.by": "id; DROP TABLE t"},
        {"table": "t", "order.by": "(SELECT SLEEP(5))"},
        {"query": "DROP TABLE t"},
        {"query": "SELECT 1; DROP TABLE t"},
        {"query": "SELECT * FROM t INTO OUTFILE '/tmp/x'"},
        {"query": "DELETE FROM t RETURNING id"},
        {"table": "t", "incremental.column": "id`; DROP TABLE t", "poll.interval": "1s"},
    ):
        with pytest.raises((InvalidOption, TableMissing, SourceError)):
            table_of(source(server, home, **options))
    assert ids(source(server, home, "t")) == [1, 2, 3]


def test_values_are_bound(server: MariaDb, home: str) -> None:
    read = source(
        server, home, query="SELECT id FROM t WHERE who = ? OR id = ?", query_params="[\"bob' OR '1'='1\", 3]"
    )
    assert ids(read) == [3]
    assert ids(source(server, home, "t", where="who LIKE '%nn' OR who = 'b%'")) == [1]
    assert ids(source(server, home, query="SELECT id FROM t WHERE who LIKE '%b' -- no more")) == [2]


def test_a_reader_changes_nothing(server: MariaDb, home: str) -> None:
    server.execute(
        "CREATE FUNCTION f() RETURNS int DETERMINISTIC MODIFIES SQL DATA BEGIN DELETE FROM t; RETURN 1; END",
        home,
    )
    with pytest.raises(SourceError, match="READ ONLY"):
        table_of(source(server, home, query="SELECT f() AS id"))
    assert ids(source(server, home, "t")) == [1, 2, 3]


# readers side by side


def test_readers_side_by_side_read_each_row_once(server: MariaDb, home: str) -> None:
    server.execute("CREATE TABLE big (id bigint PRIMARY KEY, a int)", home)
    server.execute("INSERT INTO big SELECT seq * 3, seq FROM seq_1_to_10000", home)
    read = source(server, home, "big", parallel_readers="4")
    splits = read.splits(None, read.latest(None))
    found: list[int] = []
    threads = [
        threading.Thread(
            target=lambda s=s: found.extend(i for b in read.read(s) for i in b.column("id").to_pylist())
        )
        for s in splits
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read.close()
    assert len(splits) > 3 and sorted(found) == [i * 3 for i in range(1, 10_001)]


# connections


@pytest.mark.slow
def test_connections_can_be_secured(servers: Servers, home: str, certificate: tuple[str, Any]) -> None:
    server = servers.mariadb
    key = Path(certificate[0]).with_name("key.pem")
    server.stop()
    server.start(f"--ssl-cert={certificate[0]}", f"--ssl-key={key}")
    try:
        for options in (
            {},
            {"ssl_mode": "disable"},
            {"ssl_mode": "require"},
            {"ssl_mode": "verify-full", "ssl_ca": certificate[0]},
        ):
            read = source(server, home, query="SELECT 1 AS id", **options)
            with read.database.connected() as connection:
                cipher = connection.exec_driver_sql("SHOW STATUS LIKE 'Ssl_cipher'").fetchone()
            assert bool(cipher[1]) == (options.get("ssl_mode") != "disable")
            read.close()
        with pytest.raises(Error, match="certificate"):
            source(server, home, "t", ssl_mode="verify-ca", retry_timeout="0s").schema()
    finally:
        server.stop()
        server.start()


# tables that follow


def test_a_table_follows_with_its_live_aggregate_through_restarts(
    servers: Servers, home: str, tmp_state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = servers.mariadb
    text = f"""
        CREATE TABLE t AS SELECT * FROM {server.url(home)}?table=t WITH ('cdc' = 'true', 'retry.timeout' = '1s');
        CREATE TABLE sums AS SELECT who, SUM(amount) AS total, COUNT(*) AS n FROM t GROUP BY who;
    """

    def same(app: App) -> None:
        app.drain()
        wanted = server.execute("SELECT * FROM t ORDER BY id", home)
        assert [tuple(r.values()) for r in app.sql("SELECT * FROM t ORDER BY id").rows()] == wanted
        wanted = server.execute("SELECT who, SUM(amount), COUNT(*) FROM t GROUP BY who ORDER BY who", home)
        assert [tuple(r.values()) for r in app.sql("SELECT * FROM sums ORDER BY who").rows()] == wanted

    with caplog.at_level(logging.DEBUG), App(text, state=tmp_state) as app:
        same(app)
        server.execute("UPDATE t SET amount = amount + 1, id = id + 10 WHERE id < 3", home)
        server.execute("INSERT INTO t VALUES (20, 'ann', 9.99), (21, 'cy', 1)", home)
        server.execute("DELETE FROM t WHERE id = 3", home)
        same(app)
        assert "pond" not in str(app.sql("SHOW CREATE TABLE t").rows()).replace("millpond", "")
        assert app.sql("DESCRIBE EXTENDED t").rows()
        server.stop()
        server.start()
        server.execute("INSERT INTO t VALUES (30, 'dan', 1)", home)
        wait_for(lambda: app.table("t").contains(id=30))
        same(app)
    server.execute("UPDATE t SET amount = 0 WHERE id = 30", home)
    server.execute("DELETE FROM t WHERE id = 21", home)
    with App(text, state=tmp_state) as app:
        same(app)
        server.execute("TRUNCATE t", home)
        same(app)
    assert ":pond@" not in caplog.text


def test_a_table_whose_log_cannot_be_read_is_loaded_and_says_why(server: MariaDb, home: str) -> None:
    server.execute("CREATE OR REPLACE USER reader@'localhost' IDENTIFIED BY 'x'")
    server.execute(f"GRANT SELECT ON {home}.* TO reader@'localhost'")
    with App() as app:
        uri = server.url(home, "reader", "x")
        app.sql(f"CREATE TABLE t AS SELECT * FROM {uri}?table=t WITH ('cdc' = 'true')")
        assert len(app.sql("SELECT * FROM t").rows()) == 3
        health = str(app.sql("DESCRIBE EXTENDED t").rows())
        assert "REPLICATION" in health
