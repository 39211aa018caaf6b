"""Requests of somebody who has a token for reading and wants more: secrets, hosts, files, memory, time."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.sql_language.test_growth import LARGE
from tests.sql_language.test_text_limits import DEEP, WIDE

SERVER = """
import sys
from millpond import App

app = App(
    "CREATE TABLE t (id INT PRIMARY KEY, s STRING, n INT, a ARRAY<STRING>);"
    "CREATE STREAM o (id INT, s STRING); CREATE VIEW v AS SELECT n, COUNT(*) AS c FROM t GROUP BY n",
    state=sys.argv[1],
)

@app.function
def inner_secret(x: str) -> str:
    return open(sys.argv[2]).read()

app.table("t").bulk_insert(
    [{"id": i, "s": f"text {i}", "n": i % 7, "a": ["x", str(i)]} for i in range(20_000)]
)
assert app.sql("SELECT bin(5) AS b").rows() == [{"b": "101"}]  # Spark is there
server = app.serve(limits={"seconds": 10, "body_seconds": 3, "head_seconds": 3})
print(server.port, flush=True)
sys.stdin.read()
app.close()
"""


@dataclass(frozen=True)
class Asked:
    """An answer, or why there was none."""

    what: str
    status: int | None
    text: str


Attack = Callable[[httpx.Client], Asked]


def sql(text: str, params: Any = None) -> Attack:
    def ask(client: httpx.Client) -> Asked:
        answer = client.post("/sql", json={"sql": text, "params": params})
        return Asked(text[:200], answer.status_code, answer.text)

    return ask


def send(method: str, path: str, **more: Any) -> Attack:
    def ask(client: httpx.Client) -> Asked:
        answer = client.request(method, path, **more)
        return Asked(f"{method} {path[:200]}", answer.status_code, answer.text)

    return ask


def raw(request: bytes) -> Attack:
    """Bytes that are no good request; whatever comes back."""

    def ask(client: httpx.Client) -> Asked:
        parts: list[bytes] = []
        try:
            with socket.create_connection(
                (client.base_url.host, client.base_url.port or 80), 15
            ) as connection:
                for at in range(0, len(request), 50_000):
                    connection.sendall(request[at : at + 50_000])
                while part := connection.recv(65536):
                    parts.append(part)
        except OSError:
            pass
        said = b"".join(parts)
        status = int(said[9:12]) if said.startswith(b"HTTP/1.1 ") else None
        return Asked(repr(request[:100]), status, said.decode("latin-1"))

    return ask


def attacks(port: int, secret: str) -> list[Attack]:
    """All of them. ``port`` is one where somebody listens, ``secret`` a file."""
    return [*_secrets(port, secret), *_outside(port, secret), *_large(), *_long(), *_requests(secret)]


def _secrets(port: int, secret: str) -> Iterator[Attack]:
    calls = [
        "reflect('java.lang.System', 'getenv', 'MILLPOND_TOKEN_ADMIN')",
        "java_method('java.lang.System', 'getenv', 'MILLPOND_TOKEN_ADMIN')",
        "try_reflect('java.lang.System', 'getProperty', 'java.class.path')",
        f"reflect('javax.naming.InitialContext', 'doLookup', 'ldap://127.0.0.1:{port}/a')",
        "reflect('java.lang.System', 'exit', '1')",
        "REFLECT('java.lang.Runtime', 'getRuntime')",
        "`reflect`('java.lang.System', 'getenv')",
        "system.builtin.reflect('java.lang.System', 'getenv', 'PATH')",
        "current_user()", "user()", "session_user()", "version()", "current_catalog()", "current_database()",
        "input_file_name()", "getenv('MILLPOND_TOKEN_ADMIN')", f"read_text('{secret}')", f"read_blob('{secret}')",
        "inner_secret(s)", "INNER_SECRET('x')", "current_setting('threads')", "getvariable('x')",
        f"from_xml(s, 'a STRING', map('rowValidationXSDPath', '{secret}'))",
        f"xpath_string('<!DOCTYPE a [<!ENTITY x SYSTEM \"file://{secret}\">]><a>&x;</a>', 'a')",
        f"from_avro(CAST(s AS BINARY), '\"string\"', map('avroSchemaUrl', 'http://127.0.0.1:{port}/s'))",
        "'${MILLPOND_TOKEN_ADMIN}'", "${MILLPOND_TOKEN_ADMIN}", "'${SECRET_WORD:-x}'",
    ]  # fmt: skip
    for call in calls:
        yield sql(f"SELECT {call} AS x FROM t WHERE id = 1")
        yield send("GET", "/tables/t/rows", params={"where": f"{call} = 'x'"})
    for call in calls[::4]:
        yield send("POST", "/explain", json={"sql": f"SELECT {call} AS x"})
        yield send("GET", "/tables/t/changes", params={"where": f"{call} = 'x'"})


def _outside(port: int, secret: str) -> Iterator[Attack]:
    for text in (
        f"SELECT * FROM file://{secret}",
        "SELECT * FROM file:///etc/passwd",
        f"SELECT * FROM http://127.0.0.1:{port}/x.json",
        f"SELECT * FROM 'http://127.0.0.1:{port}/x.json'",
        f"SELECT * FROM `{secret}`",
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM csv.`{secret}`",
        f"SELECT * FROM text.`file://{secret}`",
        f"SELECT * FROM kafka_topic('x') WITH ('bootstrap.servers' = '127.0.0.1:{port}')",
        f"CREATE TABLE x AS SELECT * FROM http://127.0.0.1:{port}/x.json",
        f"CREATE TABLE x (id INT PRIMARY KEY) WITH ('extension' = 'postgresql', 'uri' = 'postgresql://127.0.0.1:{port}/x')",
        f"INSERT INTO file://{secret} SELECT * FROM t",
        f"EXPLAIN SELECT * FROM http://127.0.0.1:{port}/x.json",
        f"EXPLAIN ANALYZE SELECT * FROM http://127.0.0.1:{port}/x.json",
        f"DESCRIBE http://127.0.0.1:{port}/x.json",
        f"ATTACH 'http://127.0.0.1:{port}/db'",
        f"COPY t TO '{secret}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "PRAGMA database_list",
        "SET spark.sql.warehouse.dir = '/'",
        "ADD JAR http://127.0.0.1/x.jar",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM pg_catalog.pg_tables",
        "SELECT * FROM sqlite_master",
        "SHOW CREATE TABLE t",
        "SHOW FUNCTIONS",
        "INSERT INTO t VALUES (-1, 'x', 1, array())",
        "UPDATE t SET s = 'x' WHERE id = 1",
        "DELETE FROM t WHERE id = 1",
        "DELETE FROM t",
        "DROP TABLE t",
        "BEGIN; DELETE FROM t; COMMIT",
        "EXPLAIN ANALYZE DELETE FROM t",
        "STOP QUERY v",
        "SELECT 1; DROP TABLE t",
        "SELECT * FROM o",
    ):
        yield sql(text)


def _large() -> Iterator[Attack]:
    for shape in DEEP.values():
        yield sql(shape(10_000))
    for shape in WIDE.values():
        yield sql(shape(1_000))
        yield sql(shape(50_000))
    for expression in LARGE:
        yield sql(f"SELECT {expression} AS x FROM t")
    yield sql("SELECT repeat('x', 2000000000) AS x")
    yield sql(" UNION ALL ".join(["SELECT 1 AS a"] * 3_000))
    yield sql("SELECT 1;" * 10_000)
    yield sql("SELECT 'x" + "y" * 1_500_000 + "' AS x")
    yield sql("SELECT ? AS x", ["x" * 1_500_000])
    yield sql("SELECT id FROM t WHERE id IN (:a)", {"a": list(range(24_000))})
    yield sql("SELECT " + " || ".join([":a"] * 90) + " AS x FROM t", {"a": "x" * 100_000})
    yield sql("SELECT ? AS x", [10**4_000])
    yield sql("SELECT 1e999999999 AS x")
    yield sql("SELECT CAST('1e999999999' AS DECIMAL(38, 2)) AS x")
    yield sql("SELECT INTERVAL '99999999999999999999' DAY AS x")
    yield sql("SELECT s, s AS s2, a, * FROM t CROSS JOIN v")
    yield sql("SELECT a.s, b.s AS t FROM t a CROSS JOIN t b")
    yield sql("SELECT collect_list(a.s) AS x FROM t a CROSS JOIN t b")
    for body in (
        b'{"sql": "SELECT ? AS x", "params": [1e999999999]}',
        b"[" * 1_000_000,
        b"{" * 10,
        b"\xff\xfe",
    ):
        yield send("POST", "/sql", content=body, headers={"Content-Type": "application/json"})


def _long() -> Iterator[Attack]:
    for text in (
        "SELECT COUNT(*) AS n FROM t a JOIN t b ON a.id <> b.id JOIN t c ON b.id <> c.id",
        "SELECT SUM(a.id * b.id % 7) AS n FROM t a, t b, t c, t d",
        "SELECT a.s FROM t a JOIN t b ON a.s < b.s ORDER BY a.s || b.s LIMIT 1",
        "SELECT bin(COUNT(*)) AS n FROM t a JOIN t b ON a.id <> b.id JOIN t c ON b.id <> c.id",
        "SELECT repeat('a', 10000) LIKE '%a%a%a%a%a%a%_%a%b' AS x FROM t",
        "SELECT repeat('a', 40) RLIKE '(a+)+$' AS x",
        "SELECT concat(repeat('a', 40), '!') RLIKE '(a+)+\\\\1$' AS x FROM t",
        "SELECT regexp_count(concat(repeat('a', 40), '!'), '(a+)+$') AS x FROM t",
        "SELECT regexp_replace(concat(repeat('a', 40), '!'), '(a|aa)+$', 'x', 2) AS x FROM t",
        "SELECT split(concat(repeat('a', 40), '!'), '(a*)*b') AS x FROM t",
        "SELECT bin(1), repeat('a', 5000) LIKE '%a%a%a%a%b' AS x FROM t",
        "SELECT s RLIKE concat('(a', '+)+$') AS x FROM t",
        "SELECT levenshtein(repeat('a', 10000), repeat('b', 10000)) AS x FROM t",
    ):
        yield sql(text)
    yield send(
        "GET", "/tables/t/rows", params={"where": "concat(s, repeat('a', 40), '!') RLIKE '(a+)+\\\\1$'"}
    )


def _requests(secret: str) -> Iterator[Attack]:
    for path in (
        "/assets/..%2f..%2f..%2fetc%2fpasswd", "/assets/../server.py", "/tables/%2e%2e/rows", "/tables/t/rows/%00",
        "/tables/t/rows/" + "9" * 1_000, "/tables/t/rows?limit=99999999999999999999", "/tables/t/rows?after=%ff",
        "/tables/t/rows?limit=-1", "/tables/" + "x" * 20_000, "/queries/x/pause", "/metrics", "/graph", "/openapi.json",
        "/tables/o/rows", "/tables/t$errors/rows", "/tables/__old/rows", "/tables/t/changes?key=1&where=1",
    ):  # fmt: skip
        yield send("GET", path)
    yield send("POST", "/streams/o", json=[{"id": 1, "s": "x"}])
    yield send("POST", "/queries/v/pause")
    yield send("DELETE", "/tables/t")
    yield send("PUT", "/sql", json={"sql": "SELECT 1"})
    yield send("POST", "/sql", content=b"x" * 3_000_000)
    yield send("POST", "/sql", json={"sql": "SELECT 1", "role": "admin"})
    yield send("POST", "/sql", content=b"x", headers={"Content-Encoding": "gzip"})
    yield send("GET", "/tables", headers={"Authorization": "Bearer " + "x" * 30})
    yield send("GET", "/tables", headers={"Authorization": "Basic x", "X-Millpond-Role": "admin"})
    yield send("GET", "/tables", headers={"Origin": "http://evil.example"})
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    for request in (
        head + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n",
        head + b"A: b\r\n" * 50_000 + b"\r\n",
        head,
        b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
        b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n{}",
        b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{",
        b"POST /sql HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"POST /sql HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\nGET /x",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 100_000,
    ):
        yield raw(request)
