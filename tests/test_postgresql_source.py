"""PostgreSQL as a source: where it is, what is refused and why, what reaches the server of what is said."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millpond import App, Error
from millpond.connectors.postgresql.source import PostgresqlSource
from millpond.errors import (
    AuthenticationIssue,
    BadData,
    CaptureLost,
    CaptureRefused,
    ConnectionLost,
    DatabaseMissing,
    InvalidOption,
    PrivilegeMissing,
    SourceChanged,
    TableMissing,
    TimedOut,
    UnknownName,
)
from millpond.testing.crash import crash
from tests.logs import next_changes
from tests.postgres_tables import following, rows, source, without_slots
from tests.servers import Postgres, Servers, free_port


@pytest.fixture(scope="module")
def server(servers: Servers) -> Postgres:
    without_slots(servers.own_postgresql).execute(
        "DROP TABLE IF EXISTS items, other CASCADE; CREATE TABLE items (id int PRIMARY KEY, name text);"
        "INSERT INTO items SELECT i, 'n' || i FROM generate_series(1, 1000) i; CREATE TABLE other (id int)"
    )
    return servers.own_postgresql


def refused(kind: type[Error], work: Any) -> Error:
    with pytest.raises(kind) as told:
        work()
    assert "secret" not in str(told.value)
    assert told.value.hint
    return told.value


# where it is


def test_forms_of_the_uri(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    at = f"127.0.0.1:{server.port}"
    forms = [
        f"postgresql://millpond@{at}/postgres?table=items",
        f"postgres://millpond:secret@{at}/postgres/items",
        f"postgres://millpond@{at}/postgres?query='SELECT * FROM items'&fetch.size=100",
    ]
    for name, value in (("HOST", "127.0.0.1"), ("PORT", str(server.port)), ("USER", "millpond")):
        monkeypatch.setenv(f"PG{name}", value)
    for uri in [*forms, "postgres://postgres/items", "postgresql:///postgres?table=public.items"]:
        found = PostgresqlSource(uri, {}, None)
        assert len(rows(found)) == 1000, uri
        assert found.database.name == f"postgresql://{at}/postgres"
    found = PostgresqlSource("postgres://postgres/items", {"host": "localhost", "port": 1}, None)
    assert refused(ConnectionLost, lambda: found.database.login.open()).message.startswith(
        "postgresql://localhost:1/"
    )


def test_rows_conditions_and_parameters(server: Postgres) -> None:
    assert rows(source(server, "items", where="id % 500 = 0 AND name LIKE 'n%'", order_by="id DESC")) == [
        {"id": 1000, "name": "n1000"},
        {"id": 500, "name": "n500"},
    ]
    query = "SELECT name, id::text || '%' AS \"per cent\" FROM items WHERE id = ? OR name = ? ORDER BY id"
    found = rows(source(server, query=query, query_params='[7, "n9"]'))
    assert found == [{"name": "n7", "per cent": "7%"}, {"name": "n9", "per cent": "9%"}]
    assert len(rows(source(server, "items", limit="3", fetch_size="2"))) == 3
    for given in ('["n1\' OR true --", 0]', '["\\\\", 0]', '["%s", 0]'):
        assert (
            rows(source(server, query="SELECT * FROM items WHERE name = ? OR id = ?", query_params=given))
            == []
        )


def test_readers_side_by_side_see_one_moment(server: Postgres) -> None:
    read = source(server, "items", parallel_readers="2")
    splits = read.splits(None, read.latest(None))
    assert len(splits) > 1
    server.execute("INSERT INTO items VALUES (-5, 'late'), (2000, 'late')")
    try:
        found = [r for s in splits for b in read.read(s) for r in b.to_pylist()]
        assert sorted(r["id"] for r in found) == list(range(1, 1001))
    finally:
        read.close()
        server.execute("DELETE FROM items WHERE name = 'late'")


def test_nothing_is_changed_by_what_is_read(server: Postgres) -> None:
    server.execute(
        "CREATE OR REPLACE FUNCTION sneak() RETURNS int LANGUAGE sql AS 'INSERT INTO other VALUES (1); SELECT 1'"
    )
    told = refused(Error, lambda: rows(source(server, query="SELECT sneak()")))
    assert "read-only" in told.message


# names and values that are meant to be more


HOSTILE = [
    'x"; DROP TABLE items; --',
    "x'; DROP TABLE items; --",
    "%s",
    "%(a)s",
    "a%b",
    "ä\\'",
    "a b",
    "A",
    ":p0",
    "$1",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_quoted(server: Postgres, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    server.execute(f"DROP SCHEMA IF EXISTS {quoted} CASCADE; CREATE SCHEMA {quoted}")
    server.execute(f"CREATE TABLE {quoted}.{quoted} ({quoted} int PRIMARY KEY, v text)")
    server.execute(f"INSERT INTO {quoted}.{quoted} VALUES (1, 'a'), (2, 'b')")
    options = {"schema": name, "order_by": '"' + name.replace('"', '""') + '" DESC'}
    assert rows(source(server, name, **options)) == [{name: 2, "v": "b"}, {name: 1, "v": "a"}]
    read = source(server, name, schema=name, poll_interval="1s", incremental_column=name)
    assert len(rows(read)) == 2
    with following(server, name, schema=name) as log:
        start, _ = log.begin()
        log.begun()
        server.execute(f"INSERT INTO {quoted}.{quoted} VALUES (3, 'c')")
        (batch,) = log.read(start, log.latest(start, 10))
        assert batch.to_pylist()[0][name] == 3
    server.execute(f"DROP SCHEMA {quoted} CASCADE")
    assert server.execute("SELECT count(*) FROM items") == [(1000,)]


@pytest.mark.parametrize("name", ['s"; DROP TABLE items; --', "s'", "S", "a b", "x" * 64, ""])
def test_names_of_slots(server: Postgres, name: str) -> None:
    read = source(server, "items", slot_name=name)
    told = refused(InvalidOption, lambda: read.database.log("me", read.schema()))
    assert "slot.name" in told.message
    read.close()


@pytest.mark.parametrize(
    "options",
    [
        {"query": "DELETE FROM items RETURNING id"},
        {"query": "SELECT 1; DROP TABLE items"},
        {"query": "WITH d AS (DELETE FROM items RETURNING 1) SELECT * FROM d"},
        {"table": "items", "where": "true); DROP TABLE items; --"},
        {"table": "items", "where": "id = 1) UNION (SELECT * FROM items"},
        {"table": "items", "order_by": "id; DROP TABLE items"},
        {"table": "items", "query": "SELECT 1"},
    ],
)
def test_what_is_more_than_a_question_is_refused(server: Postgres, options: dict[str, str]) -> None:
    refused(InvalidOption, lambda: rows(source(server, **options)))
    assert server.execute("SELECT count(*) FROM items") == [(1000,)]


# what is wrong, each told by itself


def test_nobody_there() -> None:
    port = free_port()
    read = PostgresqlSource(f"postgresql://u:secret@127.0.0.1:{port}/d?table=t&retry.timeout=0s", {}, None)
    told = refused(ConnectionLost, read.schema)
    assert told.retryable and "Connection refused" in told.message


def test_a_database_or_table_that_is_not_there(server: Postgres) -> None:
    told = refused(DatabaseMissing, source(server, "items", database="nope").schema)
    assert not told.retryable and '"nope" does not exist' in told.message
    told = refused(TableMissing, source(server, "itms").schema)
    assert told.hint == 'did you mean "items"?' and '"itms"' in told.message
    refused(TableMissing, source(server, query="SELECT * FROM nowhere").schema)
    refused(UnknownName, source(server, query="SELECT nothing FROM items").schema)
    refused(BadData, lambda: rows(source(server, query="SELECT 1 / (id - id) AS x FROM items")))


@contextmanager
def role(server: Postgres, name: str, how: str = "") -> Iterator[str]:
    server.execute(f"DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN {how}")
    try:
        yield name
    finally:
        server.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def test_rights_that_are_missing(server: Postgres) -> None:
    with role(server, "poor") as poor:
        told = refused(PrivilegeMissing, lambda: rows(source(server, "items", user=poor)))
        assert told.hint == 'GRANT SELECT ON items TO "poor"' and not told.retryable
        server.execute("CREATE SCHEMA closed; CREATE TABLE closed.t (id int)")
        told = refused(
            PrivilegeMissing, lambda: rows(source(server, query="SELECT * FROM closed.t", user=poor))
        )
        assert told.hint == 'GRANT USAGE ON SCHEMA closed TO "poor"'
        server.execute("DROP SCHEMA closed CASCADE; GRANT SELECT ON items TO poor")
        assert len(rows(source(server, "items", user=poor))) == 1000
        told = refused(CaptureRefused, lambda: follow(server, "items", user=poor))
        assert told.hint == 'ALTER ROLE "poor" REPLICATION'
        server.execute("ALTER ROLE poor REPLICATION")
        told = refused(CaptureRefused, lambda: follow(server, "items", user=poor))
        assert "must be owner" in told.message or "permission denied" in told.message
        assert told.hint and 'CREATE PUBLICATION "millpond_' in told.hint
        # As the hint says, somebody else makes the publication; it is theirs, and stays.
        server.execute("CREATE PUBLICATION theirs FOR TABLE items")
        follow(server, "items", user=poor, slot_name="theirs")
        assert server.execute("SELECT pubname FROM pg_publication") == [("theirs",)]
        server.execute("ALTER PUBLICATION theirs DROP TABLE items")
        told = refused(CaptureRefused, lambda: follow(server, "items", user=poor, slot_name="theirs"))
        assert "does not give all changes" in told.message
        server.execute("DROP PUBLICATION theirs")
    assert server.execute("SELECT 1 FROM pg_replication_slots") == []


def follow(server: Postgres, table: str, **options: str) -> None:
    with following(server, table, **options) as log:
        log.begin()


def test_tables_whose_changes_are_not_told(server: Postgres) -> None:
    server.execute(
        "DROP TABLE IF EXISTS plain, loose, made CASCADE; CREATE TABLE plain (a int);"
        "CREATE UNLOGGED TABLE loose (a int PRIMARY KEY); CREATE VIEW seen AS SELECT * FROM plain;"
        "CREATE TABLE made (a int PRIMARY KEY, b int GENERATED ALWAYS AS (a * 2) STORED)"
    )
    told = refused(CaptureRefused, lambda: follow(server, "plain"))
    assert told.hint == "ALTER TABLE plain REPLICA IDENTITY FULL, or give it a PRIMARY KEY"
    server.execute("ALTER TABLE plain REPLICA IDENTITY FULL")
    follow(server, "plain")
    told = refused(CaptureRefused, lambda: follow(server, "loose"))
    assert told.hint == 'ALTER TABLE "public"."loose" SET LOGGED'
    assert "is a view" in refused(CaptureRefused, lambda: follow(server, "seen")).message
    assert '"b"' in refused(CaptureRefused, lambda: follow(server, "made")).message
    server.execute("ALTER TABLE made REPLICA IDENTITY NOTHING; ALTER TABLE made DROP b")
    assert "(a)" in refused(CaptureRefused, lambda: follow(server, "made")).message


def test_a_server_that_is_not_set_up_for_it(server: Postgres) -> None:
    before = dict(server.settings)
    try:
        server.stop("fast")
        server.settings |= {"max_replication_slots": 1, "max_wal_senders": 1}
        server.start()
        server.execute("SELECT pg_create_logical_replication_slot('taken', 'pgoutput')")
        told = refused(CaptureRefused, lambda: follow(server, "items"))
        assert "no free replication slot" in told.message and "max_replication_slots" in (told.hint or "")
        server.execute("SELECT pg_drop_replication_slot('taken')")
        with following(server, "items", slot_name="taken") as log:
            start, _ = log.begin()
            log.begun()
            log.latest(start, 1)
            told = refused(CaptureRefused, lambda: follow(server, "items"))
            assert "max_wal_senders" in told.message + (told.hint or "")
        server.stop("fast")
        server.settings |= {"wal_level": "replica"}
        server.start()
        told = refused(CaptureRefused, lambda: follow(server, "items"))
        assert told.hint == "ALTER SYSTEM SET wal_level = 'logical', then restart the server"
    finally:
        server.stop("fast")
        server.settings = before
        server.start()


def test_logins_and_secured_connections(server: Postgres, tmp_path: Path) -> None:
    data = server.directory / "data"
    rules = (data / "pg_hba.conf").read_text()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
        + [
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            str(data / "server.key"),
            "-out",
            str(data / "server.crt"),
        ],
        check=True,
        capture_output=True,
    )
    authority = tmp_path / "ca.crt"
    shutil.copy(data / "server.crt", authority)
    for name in ("server.key", "server.crt"):
        (data / name).chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(data / name, "postgres", "postgres")
    server.execute("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN PASSWORD 'right' SUPERUSER")
    try:
        (data / "pg_hba.conf").write_text(f"host all guest 127.0.0.1/32 scram-sha-256\n{rules}")
        _reloaded(server, "ALTER SYSTEM SET ssl = on")
        told = refused(AuthenticationIssue, source(server, "items", user="guest", password="secret").schema)
        assert not told.retryable and "password authentication failed" in told.message
        refused(AuthenticationIssue, source(server, "items", user="nobody").schema)
        ways: list[dict[str, str]] = [
            {"ssl_mode": "require"},
            {"ssl_mode": "verify-full", "ssl_ca": str(authority)},
        ]
        for way in ways:
            with following(server, "items", user="guest", password="right", **way) as log:
                log.begin()
            used = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            assert rows(source(server, query=used, user="guest", password="right", **way)) == [{"ssl": True}]
        wrong = {"ssl_mode": "verify-full", "ssl_ca": str(tmp_path / "none.crt")}
        refused(
            Error,
            source(server, "items", user="guest", password="secret", retry_timeout="0s", **wrong).schema,
        )
    finally:
        (data / "pg_hba.conf").write_text(rules)
        _reloaded(server, "ALTER SYSTEM RESET ssl")


def _reloaded(server: Postgres, change: str) -> None:
    server.execute(change)
    server.execute("SELECT pg_reload_conf()")
    wanted = "on" if "SET ssl" in change and "RESET" not in change else "off"
    deadline = time.monotonic() + 30
    while server.execute("SHOW ssl") != [(wanted,)]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_time_that_is_over(server: Postgres) -> None:
    slow = source(server, query="SELECT pg_sleep(20), 1 AS one", query_timeout="100ms", retry_timeout="0s")
    told = refused(TimedOut, lambda: rows(slow))
    assert told.retryable and "query.timeout" in (told.hint or "")
    slow = source(server, query="SELECT pg_sleep(20), 1 AS one", socket_timeout="300ms", retry_timeout="0s")
    told = refused(TimedOut, lambda: rows(slow))
    assert "no answer for 0.3 s" in told.message
    backend = source(server, "items", socket_timeout="300ms", retry_timeout="0s")
    with backend.database.connected() as connection:
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(TimedOut), backend.database.explaining():
                connection.exec_driver_sql("SELECT 1")
        finally:
            os.kill(pid, signal.SIGCONT)
    backend.close()


def test_a_connection_that_is_cut(server: Postgres) -> None:
    read = source(server, "items", fetch_size="10", prefetch_count="0", retry_timeout="0s")
    (split,) = read.splits(None, read.latest(None))
    server.execute(
        "CREATE TABLE IF NOT EXISTS wide AS SELECT i AS id, repeat('x', 1000) AS v FROM generate_series(1, 50000) i"
    )
    wide = source(server, "wide", fetch_size="10", prefetch_count="0")
    (split,) = wide.splits(None, wide.latest(None))
    batches = wide.read(split)
    next(batches)
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY%'")
    told = refused(ConnectionLost, lambda: list(batches))
    assert told.retryable
    assert len(rows(read)) == 1000
    wide.close()


@pytest.mark.parametrize("level", ["read uncommitted", "read committed", "repeatable read", "serializable"])
def test_isolation(server: Postgres, level: str) -> None:
    query = "SELECT current_setting('transaction_isolation') AS level, current_setting('TimeZone') AS zone"
    found = rows(source(server, query=query, transaction_isolation=level))
    assert found == [{"level": level, "zone": "UTC"}]


# in an app


def test_a_table_follows_and_is_dropped(server: Postgres, tmp_path: Path) -> None:
    server.execute(
        "DROP TABLE IF EXISTS orders; CREATE TABLE orders (id int PRIMARY KEY, qty int, note text)"
    )
    server.execute("ALTER TABLE orders ALTER note SET STORAGE EXTERNAL")
    server.execute("INSERT INTO orders SELECT i, i, repeat('n', 9000) FROM generate_series(1, 100) i")
    uri = f"postgresql://millpond:secret@127.0.0.1:{server.port}/postgres/orders"
    text = f"""CREATE TABLE copy AS SELECT * FROM {uri} WITH ('cdc' = 'true');
        CREATE TABLE sums AS SELECT qty % 2 AS odd, SUM(qty) AS total FROM copy GROUP BY qty % 2;"""
    there = "SELECT id, qty, note FROM orders ORDER BY id"

    def same(app: App) -> None:
        app.drain()
        found = sorted((r["id"], r["qty"], r["note"]) for r in app.table("copy").all_rows())
        assert found == server.execute(there)
        sums = sorted((r["odd"], r["total"]) for r in app.table("sums").all_rows())
        assert sums == server.execute("SELECT qty % 2, sum(qty) FROM orders GROUP BY 1 ORDER BY 1")

    app = App(text, state=tmp_path)
    same(app)
    server.execute("UPDATE orders SET qty = qty + 1 WHERE id < 50; DELETE FROM orders WHERE id > 90")
    server.execute("UPDATE orders SET id = id + 1000 WHERE id < 10; INSERT INTO orders VALUES (5, 5, NULL)")
    same(app)
    crash(app)
    server.execute("UPDATE orders SET qty = -1 WHERE id > 80; DELETE FROM orders WHERE id = 20")
    with App(text, state=tmp_path) as app:
        same(app)
        with pytest.raises(Error):
            app.sql("SELECT nothing FROM copy")
        shown = str(app.sql("SHOW CREATE TABLE copy").rows()) + str(app.sql("DESCRIBE EXTENDED copy").rows())
        assert "secret" not in shown
        app.sql("DROP TABLE sums; DROP TABLE copy")
        assert server.execute("SELECT 1 FROM pg_replication_slots") == []
        assert server.execute("SELECT 1 FROM pg_publication") == []


def test_a_read_that_is_left_early_leaves_a_good_connection(server: Postgres) -> None:
    read = source(
        server, query="SELECT i, repeat('x', 100) AS v FROM generate_series(1, 1000000) i", pool_size="1"
    )
    with read.database.connected() as connection:
        statement = read._select()
        batches = read.database.batches(connection, statement, read.schema())
        assert next(batches).num_rows == 10_000
        batches.close()  # type: ignore[attr-defined]
    with read.database.connected() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    with pytest.raises(BadData, match="division by zero"):
        rows(
            source(
                server, query="SELECT 1 / (5000 - i) AS v FROM generate_series(1, 10000) i", fetch_size="100"
            )
        )
    read.close()


def test_a_moment_that_is_over(server: Postgres) -> None:
    read = source(server, "items")
    moment = read.database.snapshot()
    with read.database.connected(moment) as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM items").scalar_one() == 1000
    read.database.close()
    with pytest.raises(SourceChanged, match="is over"), read.database.connected(moment):
        pass
    read.close()


def test_texts_that_are_none(server: Postgres) -> None:
    server.execute("DROP DATABASE IF EXISTS bytes")
    server.execute("CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    server.execute("CREATE TABLE t (a text); INSERT INTO t VALUES (E'\\xff')", server.url("bytes"))
    told = refused(BadData, lambda: rows(source(server, "t", database="bytes")))
    assert "UTF8" in told.message


def test_a_slot_of_somebody_else_is_left_alone(server: Postgres) -> None:
    server.execute("DROP DATABASE IF EXISTS elsewhere")
    server.execute("CREATE DATABASE elsewhere")
    server.execute("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')", server.url("elsewhere"))
    server.execute("SELECT pg_create_logical_replication_slot('tested', 'test_decoding')")
    try:
        for name in ("theirs", "tested"):
            read = source(server, "items", slot_name=name)
            log = read.database.log("me", read.schema())
            told = refused(CaptureRefused, log.begin)
            assert "is for something else" in told.message
            log.drop()
            log.close()
            read.close()
        with following(server, "items", slot_name="mine") as one:
            start, _ = one.begin()
            one.begun()
            server.execute("CREATE TABLE IF NOT EXISTS another (id int PRIMARY KEY)")
            read = source(server, "another", slot_name="mine")
            log = read.database.log("other", read.schema())
            assert "was not made for this table" in refused(CaptureRefused, log.begin).message
            log.drop()
            log.close()
            read.close()
            assert one.latest(start, 1) == start
    finally:
        server.execute("SELECT pg_drop_replication_slot('tested')")
        server.execute("SELECT pg_drop_replication_slot('theirs')", server.url("elsewhere"))


def test_a_slot_that_was_there_is_neither_made_anew_nor_dropped(server: Postgres) -> None:
    asked = "SELECT slot_name, confirmed_flush_lsn::text FROM pg_replication_slots"
    server.execute("SELECT pg_create_logical_replication_slot('there', 'pgoutput')")
    before = server.execute(asked)
    try:
        told = refused(CaptureRefused, lambda: follow(server, "items", slot_name="there"))
        assert 'has a slot "there" already' in told.message and "pg_drop_replication_slot" in (
            told.hint or ""
        )
        assert server.execute(asked) == before and server.execute("SELECT 1 FROM pg_publication") == []
        with following(server, "items", slot_name="there") as log:
            start = log.start("earliest")
            server.execute("INSERT INTO items SELECT 5000 + i, NULL FROM generate_series(1, 3) i")
            assert len(next_changes(log, start)[1]) == 3
            server.execute("DELETE FROM items WHERE id > 5000")
        assert [name for name, _ in server.execute(asked)] == ["there"]
        assert server.execute("SELECT 1 FROM pg_publication") == []
    finally:
        server.execute("SELECT pg_drop_replication_slot('there')")


def test_a_slot_has_one_owner(server: Postgres) -> None:
    """The one who made it may make it anew, also if the publication is somebody else's."""
    server.execute("CREATE PUBLICATION given FOR TABLE items")
    try:
        for name in ("one", "given"):
            read = source(server, "items", slot_name=name)
            first, second = (read.database.log(owner, read.schema()) for owner in ("first", "second"))
            first.begin()
            start, _ = first.begin()
            first.close()
            told = refused(CaptureRefused, second.begin)
            assert "was not made for this table" in told.message
            second.drop()
            assert server.execute("SELECT slot_name FROM pg_replication_slots") == [(name,)]
            again = read.database.log("first", read.schema())
            again.latest(start, 1)
            again.drop()
            assert server.execute("SELECT slot_name FROM pg_replication_slots") == []
            for log in (first, second, again):
                log.close()
            read.close()
        assert server.execute("SELECT pubname FROM pg_publication") == [("given",)]
    finally:
        server.execute("DROP PUBLICATION given")


def test_a_log_that_is_closed_while_another_thread_reads_it_frees_its_slot(server: Postgres) -> None:
    for _ in range(5):
        read = source(server, "items")
        log = read.database.log("one", read.schema())
        start, _ = log.begin()
        log.begun()
        gone: list[Error] = []

        def ask(log: Any = log, start: Any = start, gone: list[Error] = gone) -> None:
            while not gone:
                try:
                    log.latest(start, 1)
                except Error as error:
                    gone.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(random.uniform(0, 0.05))
        log.drop()
        thread.join(30)
        assert not thread.is_alive() and gone
        assert server.execute("SELECT 1 FROM pg_replication_slots") == []
        log.close()
        read.close()


def test_a_publication_that_leaves_something_out_is_refused(server: Postgres) -> None:
    for part in ("items WHERE (id > 100)", "items (id)"):
        server.execute(f"CREATE PUBLICATION part FOR TABLE {part}")
        told = refused(CaptureRefused, lambda: follow(server, "items", slot_name="part"))
        assert "does not give all changes" in told.message and "CREATE PUBLICATION" in (told.hint or "")
        server.execute("DROP PUBLICATION part")
    with following(server, "items") as log:
        start, _ = log.begin()
        log.begun()
        server.execute(f"ALTER PUBLICATION {start['slot']} SET TABLE items WHERE (id > 100)")
        told = refused(CaptureLost, lambda: log.latest(start, 1))
        assert "any more" in told.message


def test_the_right_to_read_the_log_is_taken_away(server: Postgres) -> None:
    with role(server, "former") as former:
        server.execute("ALTER ROLE former REPLICATION; GRANT SELECT ON items TO former")
        server.execute("CREATE PUBLICATION formerly FOR TABLE items")
        with following(server, "items", user=former, slot_name="formerly") as log:
            start, _ = log.begin()
            log.begun()
            log.latest(start, 1)
            log._end_stream()
            server.execute("ALTER ROLE former NOREPLICATION")
            told = refused(CaptureRefused, lambda: log.latest(start, 1))
            assert told.hint == 'ALTER ROLE "former" REPLICATION'
            server.execute("ALTER ROLE former REPLICATION")
            assert log.latest(start, 1) == start
        server.execute("DROP PUBLICATION formerly")
