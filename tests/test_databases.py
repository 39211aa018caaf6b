"""Tables in databases: those that are there already, what goes wrong, and servers that go away."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from millpond import App, Error
from millpond.errors import (
    AccessRefused,
    BadData,
    ConnectionLost,
    InvalidOption,
    InvalidRecord,
    NotSupported,
    PackageMissing,
    TypeMismatch,
    UnknownName,
)
from tests.servers import MariaDb, MongoJavaServer, Postgres, Redis, Servers, free_port

# tables that are there


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE users (ID INTEGER PRIMARY KEY, name VARCHAR(20), note TEXT, paid DECIMAL(10,2))"
        )
        db.execute("INSERT INTO users VALUES (1, 'Ann', 'keep me', 3.5), (2, 'Bob', NULL, 2)")
    db.close()
    return path


def sqlite(columns: str, path: Path, table: str = "users") -> str:
    return f"CREATE TABLE u ({columns}) WITH ('extension' = 'sqlite', 'path' = '{path}', 'table' = '{table}')"


def test_a_sqlite_table_that_is_there_is_used(shop: Path) -> None:
    with App(sqlite("id BIGINT PRIMARY KEY, name STRING", shop)) as app:
        assert app.table("u").get_record(1) == {"id": 1, "name": "Ann"}
        app.sql("UPDATE u SET name = 'Anna' WHERE id = 1; INSERT INTO u VALUES (3, 'Cid')")
        with sqlite3.connect(shop) as db:
            rows = db.execute("SELECT id, name, note FROM users ORDER BY id").fetchall()
            assert rows == [(1, "Anna", "keep me"), (2, "Bob", None), (3, "Cid", None)]
            db.execute("DELETE FROM users WHERE id = 2")
        db.close()
        assert [r["id"] for r in app.sql("SELECT id FROM u ORDER BY id").rows()] == [1, 3]
        app.sql("DROP TABLE u")
    with sqlite3.connect(shop) as db:
        assert db.execute("SELECT count(*) FROM users").fetchone() == (2,)
    db.close()


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ("id BIGINT PRIMARY KEY, nmae STRING", UnknownName, 'has a table "users" without a column "nmae"'),
        (
            "id BIGINT PRIMARY KEY, name BIGINT",
            TypeMismatch,
            '"name" is VARCHAR.20. in the file, which does not hold BIGINT exactly',
        ),
        ("id BIGINT PRIMARY KEY, paid DECIMAL(10,2)", TypeMismatch, '"paid".*exactly'),
        ("id BIGINT, name STRING", NotSupported, "primary key"),
        ("id BIGINT, name STRING PRIMARY KEY", NotSupported, "not unique"),
    ],
)
def test_a_sqlite_table_that_does_not_fit_is_refused(
    shop: Path, columns: str, error: type[Error], words: str
) -> None:
    with App() as app:
        with pytest.raises(error, match=words):
            app.sql(sqlite(columns, shop))
        assert app.tables() == []


def test_what_is_wrong_with_a_sqlite_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, and long enough to be looked at" * 20)
    with App() as app:
        with pytest.raises(BadData, match="no SQLite file"):
            app.sql(sqlite("id INT PRIMARY KEY", tmp_path / "text.db"))
        with pytest.raises(AccessRefused, match="directory"):
            app.sql(sqlite("id INT PRIMARY KEY", tmp_path / "none" / "x.db"))
        with pytest.raises(Error, match="both name the file"):
            app.sql(
                "CREATE TABLE u (id INT) WITH ('extension' = 'sqlite', 'path' = 'a', 'url' = 'sqlite:///b')"
            )


@pytest.mark.parametrize(
    ("extension", "said", "hint"),
    [
        ("postgresql", "a PostgreSQL database", "postgresql://user@host/database"),
        ("mysql", "a MySQL database", "mysql://user@host/database"),
        ("redis", "a Redis database", "redis://host:6379/0"),
        ("mongodb", "a MongoDB database", "mongodb://host:27017/database"),
    ],
)
def test_a_table_needs_the_url_of_its_database(extension: str, said: str, hint: str) -> None:
    with App() as app, pytest.raises(InvalidOption, match=f'table "u" needs the URL of {said}') as e:
        app.sql(f"CREATE TABLE u (id INT PRIMARY KEY) WITH ('extension' = '{extension}', 'url' = 'x://y')")
    assert e.value.hint == f"WITH ('url' = '{hint}')"


def test_a_value_that_another_program_wrote_and_is_none_of_the_type(shop: Path) -> None:
    with sqlite3.connect(shop) as db:
        db.execute("UPDATE users SET name = x'00ff' WHERE id = 2")
    db.close()
    with App(sqlite("id INT PRIMARY KEY, name STRING", shop)) as app:
        assert app.table("u").get_record(1) == {"id": 1, "name": "Ann"}
        with pytest.raises(BadData, match=r'"name".*STRING'):
            app.table("u").all_rows()


def test_a_postgresql_table_that_is_there_is_used(servers: Servers) -> None:
    server = servers.postgresql
    url = server.new_schema("crm")
    server.execute(
        "CREATE TABLE crm.users (id int PRIMARY KEY, \"Name\" varchar(10) NOT NULL, note text DEFAULT 'new',"
        " spent numeric(12,4), CHECK (id < 1000));"
        "INSERT INTO crm.users VALUES (1, 'Ann', 'keep me', 1.5)"
    )

    def create(columns: str, table: str = "crm.users") -> str:
        return f"CREATE TABLE u ({columns}) WITH ('extension' = 'postgresql', 'url' = '{url}', 'table' = '{table}')"

    for columns, error, words in (
        ("id INT PRIMARY KEY, nmae STRING", UnknownName, 'the table "crm.users" in .* has no column "nmae"'),
        ("id INT PRIMARY KEY, name INT", TypeMismatch, '"name".*character varying'),
        ("id BIGINT PRIMARY KEY", TypeMismatch, "integer.*BIGINT"),
        ("id INT PRIMARY KEY, spent DECIMAL(12,5)", TypeMismatch, "numeric"),
        ("id INT, name STRING PRIMARY KEY", NotSupported, "not unique"),
        ("id INT, name STRING", NotSupported, "primary key"),
    ):
        with App() as app, pytest.raises(error, match=words):
            app.sql(create(columns))
    with App(create("id INT PRIMARY KEY, name STRING, spent DECIMAL(10,2)")) as app:
        users = app.table("u")
        assert users.get_record(1)["name"] == "Ann"
        app.sql("UPDATE u SET name = upper(name); INSERT INTO u VALUES (2, 'Bob', 2)")
        assert server.execute('SELECT "Name", note FROM crm.users ORDER BY id') == [
            ("ANN", "keep me"),
            ("Bob", "new"),
        ]
        with pytest.raises(InvalidRecord, match="refuses a row"):
            users.insert({"id": 3})
        with pytest.raises(InvalidRecord, match="check constraint"):
            users.bulk_insert([{"id": 4, "name": "x"}, {"id": 5000, "name": "y"}])
        with pytest.raises(InvalidRecord):
            users.insert({"id": 5, "name": "nul \x00"})
        with pytest.raises(InvalidRecord, match="too long"):
            users.insert({"id": 5, "name": "longer than ten"})
        assert len(users) == 2
        server.execute("UPDATE crm.users SET spent = 1.23456 WHERE id = 1")
        with pytest.raises(BadData, match=r'"spent".*DECIMAL'):
            users.all_rows()
        server.execute("UPDATE crm.users SET spent = 1; ALTER TABLE crm.users DROP COLUMN spent")
        with pytest.raises(UnknownName, match="spent"):
            users.all_rows()
        server.execute("DROP TABLE crm.users")
        with pytest.raises(UnknownName, match=r"crm\.users"):
            users.insert({"id": 9, "name": "z"})


# what goes wrong


def open_table(url: str, extension: str = "postgresql", timeout: str = "0s", more: str = "") -> App:
    options = f"'extension' = '{extension}', 'url' = '{url}', 'retry.timeout' = '{timeout}'{more}"
    return App(f"CREATE TABLE t (id INT PRIMARY KEY, v STRING) WITH ({options})")


def test_failures_of_postgresql_are_told_apart_and_show_no_password(servers: Servers) -> None:
    server = servers.postgresql
    nobody = f"postgresql://me:hunter2@127.0.0.1:{free_port()}/x"
    with pytest.raises(ConnectionLost) as lost:
        open_table(nobody)
    assert lost.value.retryable
    server.execute("CREATE ROLE reader LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    with pytest.raises(AccessRefused) as refused:
        open_table(server.url(user="reader:hunter2"))
    with pytest.raises(AccessRefused):
        open_table(server.url(user="stranger:hunter2"))
    with pytest.raises(UnknownName) as missing:
        open_table(server.url(database="nowhere", user="millpond:hunter2"))
    for caught in (lost, refused, missing):
        assert "hunter2" not in str(caught.value) and caught.value.hint


def test_failures_of_redis_are_told_apart(servers: Servers) -> None:
    with pytest.raises(ConnectionLost):
        open_table(f"redis://:hunter2@127.0.0.1:{free_port()}/0", "redis")
    with pytest.raises(AccessRefused) as refused:
        open_table(f"redis://me:hunter2@127.0.0.1:{servers.redis.port}/0", "redis")
    assert "hunter2" not in str(refused.value)
    servers.redis.command("SET", "some:taken:about", "something else")
    with App() as app, pytest.raises(TypeMismatch, match="another table"):
        app.sql(
            "CREATE TABLE t (id INT PRIMARY KEY) WITH"
            f" ('extension' = 'redis', 'url' = '{servers.redis.url()}', 'prefix' = 'some:', 'table' = 'taken')"
        )


@pytest.mark.parametrize(
    ("extension", "package"),
    [("postgresql", "psycopg"), ("mysql", "pymysql"), ("redis", "redis"), ("mongodb", "pymongo")],
)
def test_a_missing_driver_is_answered_with_the_command(extension: str, package: str) -> None:
    url = f"{extension}://localhost/0"
    code = (
        f"import sys; sys.modules['{package}'] = None\nfrom millpond import App, Error\n"
        f"try: App(\"CREATE TABLE t (id INT) WITH ('extension' = '{extension}', 'url' = '{url}')\")\n"
        "except Error as e: print(e.code, e.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == f"{PackageMissing.code} pip install 'millpond[{extension}]'", done.stderr


def test_secrets_are_neither_shown_nor_kept(
    servers: Servers, tmp_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = servers.postgresql.new_schema("secrets").replace("millpond@", "millpond:hunter2@")
    monkeypatch.setenv("SECRET_URL", url)
    text = f"""
        CREATE TABLE a (id INT PRIMARY KEY) WITH ('extension' = 'postgresql', 'url' = '${{SECRET_URL}}');
        CREATE TABLE b (id INT PRIMARY KEY) WITH ('extension' = 'postgresql', 'url' = '{url}');
    """
    with App(text, state=tmp_state) as app:
        app.sql("INSERT INTO a VALUES (1)")
        for statement in ("SHOW CREATE TABLE a", "SHOW CREATE TABLE b", "SHOW TABLES", "DESCRIBE EXTENDED a"):
            assert "hunter2" not in str(app.sql(statement).rows())
    with App(text, state=tmp_state) as app:
        assert len(app.table("a")) == 1
    # The text that names it keeps it; what came from the environment is nowhere.
    only = text.split(";")[0] + ";"
    other = tmp_state.with_name("other")
    with App(only.replace("TABLE a", "TABLE c"), state=other):
        pass
    for file in other.rglob("*"):
        if file.is_file():
            assert b"hunter2" not in file.read_bytes(), file


# servers that go away


@pytest.fixture(params=["postgresql", "mariadb", "redis", "mongodb"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    if request.param == "mariadb":
        return request.getfixturevalue("servers").mariadb
    servers = Servers()
    found = getattr(servers, request.param)
    request.addfinalizer(servers.stop)
    return found


@pytest.mark.slow
def test_a_server_that_goes_away_in_the_middle_of_writes(
    server: Postgres | MariaDb | Redis | MongoJavaServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Writers meet the stop anywhere. What was acknowledged is there, nothing is there in part, and all goes on when
    the server is back: with a long retry by itself, with none after a clear error."""
    extension = {Postgres: "postgresql", MariaDb: "mysql", Redis: "redis", MongoJavaServer: "mongodb"}[
        type(server)
    ]
    if isinstance(server, Redis | MongoJavaServer):
        server.stop()
        server.start(durable=True)
    # One database for each: tables of one have the longest of their retries.
    other = ", 'prefix' = 'other:'" if isinstance(server, Redis) else ""
    if isinstance(server, MariaDb):
        url = server.new_database("goes_away")
        second = f"{url}?ssl.mode=disable"
    elif isinstance(server, MongoJavaServer):
        url, second = server.url("one"), server.url("other")
    else:
        url = server.url()
        second = url if isinstance(server, Redis) else server.url(application_name="other")
    with (
        open_table(second, extension, "0s", other) as impatient,
        open_table(url, extension, "60s") as patient,
    ):
        acknowledged: list[int] = []
        refused: list[Error] = []
        stop = threading.Event()

        def write() -> None:
            table, number = patient.table("t"), 0
            while not stop.is_set():
                table.bulk_insert([{"id": number * 10 + i, "v": str(number)} for i in range(10)])
                acknowledged.append(number)
                number += 1

        def try_to_write() -> None:
            while not stop.is_set():
                try:
                    impatient.sql("INSERT INTO t VALUES (-1, 'x')")
                except Error as error:
                    refused.append(error)
                time.sleep(0.005)

        caplog.set_level(logging.WARNING, "millpond")
        writers = [threading.Thread(target=write), threading.Thread(target=try_to_write)]
        for writer in writers:
            writer.start()
        for _ in range(2):
            time.sleep(0.5)
            server.stop()
            time.sleep(0.2)
            health = impatient.table("t").health_check()
            assert health.status == "disconnected" and "does not answer" in health.reason
            server.start()
        before = len(acknowledged)
        deadline = time.monotonic() + 60
        while len(acknowledged) < before + 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        stop.set()
        for writer in writers:
            writer.join(90)
        assert len(acknowledged) >= before + 5
        assert refused and all(isinstance(e, ConnectionLost) and e.hint for e in refused)
        assert "trying again" in caplog.text
        rows: dict[str, int] = {}
        for row in patient.table("t").find("id >= 0"):
            rows[row["v"]] = rows.get(row["v"], 0) + 1
        assert rows == {str(number): 10 for number in acknowledged}
        assert impatient.table("t").health_check().status == "healthy"


# replicas


@pytest.mark.slow
@pytest.mark.parametrize("extension", ["postgresql", "mysql"])
def test_reads_go_to_replicas_that_have_the_last_write(servers: Servers, extension: str) -> None:
    """A second schema stands for a replica: where a row was read can be told, and it has what is copied there."""
    name = f"copies_{extension}"
    server: Postgres | MariaDb = servers.mariadb if extension == "mysql" else servers.postgresql
    new = server.new_database if isinstance(server, MariaDb) else server.new_schema
    primary, replica = new(f"{name}_main"), new(f"{name}_read")
    with App(
        f"CREATE TABLE t (id INT PRIMARY KEY) WITH ('extension' = '{extension}', 'url' = '{replica}')"
    ) as app:
        app.sql("INSERT INTO t VALUES (99)")
    gone = f"{extension}://millpond@127.0.0.1:{free_port()}/nowhere"

    def replicate() -> None:
        server.execute(f"DELETE FROM {name}_read.millpond_positions")
        server.execute(
            f"INSERT INTO {name}_read.millpond_positions SELECT * FROM {name}_main.millpond_positions"
        )

    for replicas, read in ((replica, True), (f"{gone}, {replica}", True), (gone, False)):
        options = f"'extension' = '{extension}', 'url' = '{primary}', 'replica.urls' = '{replicas}'"
        with App(f"CREATE TABLE t (id INT PRIMARY KEY) WITH ({options})") as app:
            for _ in range(2):
                app.sql("INSERT INTO t VALUES (1)")
                for _ in range(2):
                    assert app.sql("SELECT id FROM t").rows() == [{"id": 1}]
                    assert app.table("t").get_record(1) == {"id": 1}
                replicate()
                for _ in range(2):
                    assert app.sql("SELECT id FROM t").rows() == [{"id": 99 if read else 1}]
                    assert (app.table("t").get_record(1) is None) is read


# redis


def test_redis_rows_end_by_their_ttl_and_ranges_find_them(servers: Servers) -> None:
    options = f"'extension' = 'redis', 'url' = '{servers.redis.url()}', 'prefix' = 'ttl:'"
    with App(
        f"""
        CREATE TABLE s (id INT PRIMARY KEY, at TIMESTAMP, d DECIMAL(20,2), v STRING)
          WITH ({options}, 'range.columns' = 'at, d');
        CREATE TABLE e (id INT PRIMARY KEY, n INT) WITH ({options}, 'ttl' = '400ms', 'range.columns' = 'n');
        """
    ) as app:
        rows = [{"id": i, "at": f"2024-01-01 00:00:{i:02}", "d": i, "v": str(i)} for i in range(60)]
        table = app.table("s")
        table.bulk_insert(rows)
        asked: list[tuple[object, ...]] = []
        keep = type(table._backend.database).script

        def script(self: object, text: str, keys: list[str], values: list[object]) -> object:
            asked.append((values[0], len(found := keep(self, text, keys, values)) - 1))  # type: ignore[arg-type]
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(table._backend.database), "script", script)
            assert [r["id"] for r in table.find("at >= TIMESTAMP '2024-01-01 00:00:57'")] == [57, 58, 59]
            assert [
                r["id"] for r in app.sql("SELECT id FROM s WHERE d BETWEEN 3 AND 4 AND v > '0'").rows()
            ] == [3, 4]
        assert asked == [("range", 3), ("range", 2)]
        app.sql("UPDATE s SET d = 1000 WHERE id = 3; DELETE FROM s WHERE id = 4")
        assert [r["id"] for r in table.find("d BETWEEN 3 AND 4 OR d = 1000")] == [3]
        assert table.find("d BETWEEN 3 AND 4") == []
        ends = app.table("e")
        ends.bulk_insert([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
        assert len(ends) == 2
        deadline = time.monotonic() + 30
        while len(ends) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ends.all_rows() == [] and not ends.contains(1) and ends.find("n > 0") == []
        ends.insert({"id": 3, "n": 3})
        assert servers.redis.command("ZRANGE", "ttl:e:rows", "0", "-1") == ["3"]
        assert servers.redis.command("ZRANGE", "ttl:e:range:n", "0", "-1") == ["3"]
        with pytest.raises(UnknownName, match=r"range\.columns"):
            app.sql(f"CREATE TABLE w (id INT PRIMARY KEY) WITH ({options}, 'range.columns' = 'x')")
        with pytest.raises(Error, match="no ranges"):
            app.sql(f"CREATE TABLE w (id INT PRIMARY KEY, s STRING) WITH ({options}, 'range.columns' = 's')")
        app.sql("DROP TABLE s")
        assert servers.redis.command("KEYS", "ttl:s:*") == []
