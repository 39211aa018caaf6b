"""Tables of databases as sinks, on real servers: upserts, deletes, rows that the database refuses. Crashes:
test_sink_faults.py.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from millpond import App, Error
from millpond.changes import Position
from millpond.connectors.postgresql.sink import PostgresSink
from millpond.connectors.sink import find_sink
from millpond.errors import ConnectionLost
from millpond.types import Column, Schema
from tests.servers import Servers

pytestmark = pytest.mark.slow
STREAM = "CREATE STREAM s (id BIGINT, k STRING, p DECIMAL(20,4), at TIMESTAMP);"


@dataclass
class Place:
    """A database that nothing has used yet."""

    url: str
    execute: Callable[[str], list[tuple[Any, ...]]]


def made(kind: str, servers: Servers, folder: Path) -> Place:
    if kind == "sqlite":
        file = folder / "out.db"
        return Place(f"sql://sqlite:///{file}", lambda sql: _sqlite(file, sql))
    name = f"out{uuid.uuid4().hex[:8]}"
    if kind == "postgresql":
        url = servers.postgresql.new_schema(name)
        return Place(url, lambda sql: servers.postgresql.execute(sql, url))
    return Place(servers.mariadb.new_database(name), lambda sql: servers.mariadb.execute(sql, name))


@pytest.fixture(params=["postgresql", "mysql", "sqlite"])
def place(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Place:
    return made(request.param, servers, tmp_path)


@pytest.fixture(params=["postgresql", "mysql"])
def server(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Place:
    """One that knows types and keys."""
    return made(request.param, servers, tmp_path)


def _sqlite(file: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as connection, connection:
        return connection.execute(sql).fetchall()


def rows(*ids: int, k: str = "a") -> list[dict[str, Any]]:
    return [{"id": i, "k": k, "p": f"{i}.2500", "at": "2024-05-06T07:08:09.123456Z"} for i in ids]


def test_rows_of_a_stream_and_of_a_table(place: Place, tmp_path: Path) -> None:
    """Tables are created; a statement of the file that runs once is not repeated after a restart."""
    text = f"""{STREAM}
        CREATE TABLE t (id BIGINT PRIMARY KEY, tags ARRAY<STRING>);
        INSERT INTO t VALUES (1, array('x')), (2, NULL);
        INSERT INTO {place.url} SELECT * FROM s WITH ('table' = 'events', 'query.name' = 'q');
        INSERT INTO {place.url} SELECT * FROM t WITH ('table' = 'copied');
    """
    for number in range(2):
        with App(text, state=tmp_path / "state") as app:
            app.send("s", rows(number))
            app.drain(60)
            plan = app.sql(f"EXPLAIN INSERT INTO {place.url} SELECT id FROM s WITH ('table' = 'x')").rows()
            assert (
                "exactly once: the rows of a batch and the position are one transaction" in plan[-1]["plan"]
            )
    found = place.execute("SELECT id, k, p FROM events ORDER BY id")
    assert [(i, k, str(p)) for i, k, p in found] == [(0, "a", "0.2500"), (1, "a", "1.2500")]
    assert len(place.execute("SELECT * FROM copied")) == 2


def test_groups_are_kept_by_their_key(place: Place, tmp_path: Path) -> None:
    """Groups that change are replaced, and those that are gone are deleted."""
    text = f"""{STREAM}
        INSERT INTO {place.url} SELECT k, COUNT(*) AS n, MAX(id) AS last FROM s GROUP BY k HAVING COUNT(*) < 3
          WITH ('table' = 'counts', 'key' = 'K');
        INSERT INTO {place.url} SELECT id, k FROM s WITH ('table' = 'last', 'key' = 'k');
    """
    with App(text, state=tmp_path / "state") as app:
        app.send("s", rows(1, 2) + rows(3, k="b"))
        app.drain(60)
        assert place.execute("SELECT k, n, last FROM counts ORDER BY k") == [("a", 2, 2), ("b", 1, 3)]
        app.send("s", rows(4))
        app.drain(60)
        assert place.execute("SELECT k, n, last FROM counts ORDER BY k") == [("b", 1, 3)]
        assert place.execute("SELECT k, id FROM last ORDER BY k") == [("a", 4), ("b", 3)]
        query = "SELECT k, COUNT(*) AS n FROM s GROUP BY k WITH ('table' = 'counts', 'key' = 'k')"
        plan = app.sql(f"EXPLAIN INSERT INTO {place.url} {query}").rows()
        assert "idempotent by k" in plan[-1]["plan"]


def test_a_row_that_the_database_refuses(server: Place, tmp_path: Path) -> None:
    """It goes to the error table, with what the database says, and can be replayed."""
    server.execute("CREATE TABLE few (id bigint NOT NULL, k varchar(3), extra int, CHECK (id < 100))")
    text = f"""{STREAM}
        INSERT INTO {server.url} SELECT id, k FROM s WITH ('table' = 'few', 'query.name' = 'q');"""
    with App(text, state=tmp_path / "state") as app:
        app.send("s", [*rows(1, 100, 2), {"id": None}, {"id": 3, "k": "four"}, *rows(4)])
        app.drain(60)
        assert server.execute("SELECT id, k FROM few ORDER BY id") == [(1, "a"), (2, "a"), (4, "a")]
        errors = app.sql("SELECT seq, reason FROM `q$errors` ORDER BY seq").rows()
        assert [e["seq"] for e in errors] == [1, 3, 4]
        server.execute("ALTER TABLE few DROP CONSTRAINT " + _constraint(server))
        assert app.sql("REPLAY `q$errors`").count == 1
        assert server.execute("SELECT MAX(id) FROM few") == [(100,)]


def _constraint(place: Place) -> str:
    sql = "SELECT constraint_name FROM information_schema.check_constraints WHERE check_clause LIKE '%100%'"
    schema = "current_schema()" if place.url.startswith("postgresql") else "database()"
    return str(place.execute(f"{sql} AND constraint_schema = {schema}")[0][0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("'table' = 't', 'key' = 'kk'", 'has no column "kk"'),
        ("'table' = 't', 'mode' = 'upsert'", "without a key"),
        ("'table' = 'there', 'key' = 'id'", "is not unique"),
        ("'table' = 'narrow'", "does not hold"),
        ("'table' = 'other'", 'has no column "id"'),
        ("'mode' = 'append'", "no table"),
    ],
)
def test_what_does_not_fit_is_refused(options: str, message: str, server: Place) -> None:
    server.execute("CREATE TABLE there (id bigint, k varchar(10))")
    server.execute("CREATE TABLE narrow (id smallint)")
    server.execute("CREATE TABLE other (x int)")
    with pytest.raises(Error, match=message):
        App(STREAM + f"INSERT INTO {server.url} SELECT id FROM s WITH ({options})")


def test_sqlite_refuses_what_its_tables_do(tmp_path: Path) -> None:
    """Also a row with NULL in its key, and a table without a column; decimals keep all their digits."""
    file = tmp_path / "out.db"
    _sqlite(file, "CREATE TABLE few (id bigint, k text, CHECK (id < 100))")
    wide = "CAST('1.250000000000000001' AS DECIMAL(38, 18)) AS p"
    text = f"""{STREAM}
        INSERT INTO sql://sqlite:///{file} SELECT id, k FROM s
          WITH ('table' = 'few', 'key' = 'id', 'query.name' = 'q');
        INSERT INTO sql://sqlite:///{file} SELECT id, {wide} FROM s WHERE id = 1 WITH ('table' = 'wide');"""
    with App(text, state=tmp_path / "state") as app:
        app.send("s", [*rows(1, 100, 2), {"id": None}, *rows(2, k="b")])
        app.drain(60)
        assert _sqlite(file, "SELECT id, k FROM few ORDER BY id") == [(1, "a"), (2, "b")]
        assert [e["seq"] for e in app.sql("SELECT seq FROM `q$errors` ORDER BY seq").rows()] == [1, 3]
        assert _sqlite(file, "SELECT p FROM wide") == [("1.250000000000000001",)]
        with pytest.raises(Error, match='has no column "p"'):
            app.sql(f"INSERT INTO sql://sqlite:///{file}?table=few SELECT id, p FROM s")
        with pytest.raises(Error, match="names no table"):
            app.sql(f"INSERT INTO sql://sqlite:///{file} SELECT id, p FROM s")


def test_clickhouse(servers: Servers, tmp_path: Path) -> None:
    """Its source reads back what was written; aggregates, whose rows change, need a key."""
    url = servers.clickhouse.new_database(f"out{uuid.uuid4().hex[:8]}")
    text = f"{STREAM} INSERT INTO {url} SELECT * FROM s WITH ('table' = 'events', 'key' = 'id');"
    with App(text, state=tmp_path / "state") as app:
        app.send("s", [*rows(1, 2), {"id": 3}])
        app.drain(60)
        found = app.sql(f"SELECT id, k, p, at FROM {url}?table=events ORDER BY id").rows()
        assert [(r["id"], r["k"], str(r["p"])) for r in found] == [
            (1, "a", "1.2500"),
            (2, "a", "2.2500"),
            (3, None, "None"),
        ]
        assert found[0]["at"].isoformat() == "2024-05-06T07:08:09.123456+00:00"
        plan = app.sql(
            f"EXPLAIN INSERT INTO {url} SELECT id FROM s WITH ('table' = 'x', 'key' = 'id')"
        ).rows()
        assert "at least once" in plan[-1]["plan"] and "ReplacingMergeTree" in plan[-1]["plan"]
        with pytest.raises(Error, match="aggregate"):
            query = "SELECT k, COUNT(*) AS n FROM s GROUP BY k WITH ('table' = 'n')"
            app.sql(f"INSERT INTO {url} {query}")
        with pytest.raises(Error, match="ARRAY"):
            app.sql(f"INSERT INTO {url} SELECT array(id) AS ids FROM s WITH ('table' = 'n')")


def test_a_dropped_query_leaves_no_position_to_a_new_one(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the database could not be reached when it was dropped: the new one begins at the beginning."""

    def unreachable(*_: object) -> None:
        raise ConnectionLost("gone")

    insert = f"INSERT INTO {place.url} SELECT id, k FROM s WITH ('table' = 'log', 'query.name' = 'q')"
    with App(STREAM, state=tmp_path / "state") as app:
        app.send("s", rows(1, 2))
        app.sql(insert)
        app.drain(60)
        with monkeypatch.context() as patched:
            patched.setattr(find_sink(place.url), "forget", unreachable)
            app.sql("DROP QUERY q")
        app.sql(insert)
        app.drain(60)
        assert place.execute("SELECT id FROM log ORDER BY id") == [(1,), (1,), (2,), (2,)]


def test_positions_do_not_pile_up(place: Place, tmp_path: Path) -> None:
    """Statements that run once leave none, and dropped queries neither, also if their table has changed."""
    text = f"""{STREAM}
        CREATE TABLE t (id BIGINT PRIMARY KEY);
        INSERT INTO t VALUES (1);
        INSERT INTO {place.url} SELECT id FROM t WITH ('table' = 'copied');
        INSERT INTO {place.url} SELECT id FROM s WITH ('table' = 'log', 'query.name' = 'q');"""
    with App(text, state=tmp_path / "state") as app:
        app.send("s", rows(1))
        app.drain(60)
        app.sql(f"INSERT INTO {place.url} SELECT id FROM t WITH ('table' = 'copied')")
        assert place.execute("SELECT id FROM copied") == [(1,), (1,)]
        names = "millpond_sink_positions" if place.url.startswith("sql:") else "millpond_positions"
        count = f"SELECT COUNT(*) FROM {names} WHERE pipeline LIKE 'sink%'"
        assert place.execute(count) == [(1,)]
        place.execute("DROP TABLE log")
        app.sql("DROP QUERY q")
        assert place.execute(count) == [(0,)]
        with pytest.raises(Exception, match="log"):
            place.execute("SELECT * FROM log")


def test_conditions_that_postgresql_checks_at_the_commit(servers: Servers, tmp_path: Path) -> None:
    """The row that violates one is found. A table that somebody dropped is created again."""
    server = made("postgresql", servers, tmp_path)
    server.execute("CREATE TABLE parents (id bigint PRIMARY KEY)")
    server.execute("INSERT INTO parents VALUES (1), (2)")
    server.execute("CREATE TABLE few (id bigint REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")
    keyed = (
        f"INSERT INTO {server.url} SELECT id FROM s WITH ('table' = 'mine', 'key' = 'id', 'query.name' = 'm')"
    )
    text = f"""{STREAM}
        INSERT INTO {server.url} SELECT id FROM s WITH ('table' = 'few', 'query.name' = 'q');"""
    with App(text, state=tmp_path / "state") as app:
        app.sql(keyed)
        app.send("s", rows(1, 3, 2))
        app.drain(60)
        assert server.execute("SELECT id FROM few ORDER BY id") == [(1,), (2,)]
        assert [e["seq"] for e in app.sql("SELECT seq FROM `q$errors`").rows()] == [1]
        app.sql("DROP QUERY m")
        server.execute("DROP TABLE mine")
        app.sql(keyed)
        app.drain(60)
        assert server.execute("SELECT id FROM mine ORDER BY id") == [(1,), (2,), (3,)]


def test_a_table_that_is_locked_in_postgresql(servers: Servers, tmp_path: Path) -> None:
    """The write ends after 'retry.timeout' and can be tried again: it does not wait for ever."""
    server = made("postgresql", servers, tmp_path)
    schema, batch = Schema((Column("id", pa.int64()),)), pa.table({"id": [1]})
    sink = PostgresSink(server.url, {"table": "log", "retry.timeout": 1.0}, schema)
    sink.open("q")
    with psycopg.connect(server.url) as other:
        other.execute("LOCK TABLE log")
        with pytest.raises(Error) as found:
            sink.write(batch, Position("q", "", 0))
        assert found.value.retryable
        with pytest.raises(Error):
            sink.check(batch)
    assert sink.open("q") is None
    sink.write(batch, Position("q", "", 0))
    sink.close()
    assert server.execute("SELECT id FROM log") == [(1,)]


def test_mysql_tables_without_transactions_are_refused(servers: Servers, tmp_path: Path) -> None:
    server = made("mysql", servers, tmp_path)
    server.execute("CREATE TABLE plain (id bigint) ENGINE = MyISAM")
    with pytest.raises(Error, match="has no transactions"):
        App(STREAM + f"INSERT INTO {server.url} SELECT id FROM s WITH ('table' = 'plain')")


def test_clickhouse_refuses_null_keys(servers: Servers, tmp_path: Path) -> None:
    """They are not 0; and NULL in a column that has none stops the query."""
    url = servers.clickhouse.new_database(f"out{uuid.uuid4().hex[:8]}")
    servers.clickhouse.execute(
        "CREATE TABLE strict (k String) ENGINE = MergeTree ORDER BY k", url.rpartition("/")[2]
    )
    text = f"""{STREAM}
        INSERT INTO {url} SELECT id, k FROM s WITH ('table' = 'events', 'key' = 'id', 'query.name' = 'q');
        INSERT INTO {url} SELECT k FROM s WITH ('table' = 'strict', 'query.name' = 'z');"""
    with App(text, state=tmp_path / "state") as app:
        app.send("s", [*rows(1), {"k": "b"}, *rows(2)])
        app.drain(60)
        assert [r["id"] for r in app.sql(f"SELECT id FROM {url}?table=events ORDER BY id").rows()] == [1, 2]
        assert [e["seq"] for e in app.sql("SELECT seq FROM `q$errors`").rows()] == [1]
        app.send("s", [{"id": 3}])
        with pytest.raises(Error):
            app.drain(60)
        assert app.sql(f"SELECT k FROM {url}?table=strict WHERE k = ''").rows() == []


def test_a_login_that_is_refused_is_not_shown(servers: Servers) -> None:
    url = f"mysql://nobody:very-secret@127.0.0.1:{servers.mariadb.port}/x"
    with pytest.raises(Error) as found:
        App(STREAM + f"INSERT INTO {url} SELECT id FROM s WITH ('table' = 't')")
    assert "very-secret" not in str(found.value)
