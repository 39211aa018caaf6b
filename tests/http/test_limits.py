"""What a client cannot do to the server: too much, too long, too many, too slow. The app goes on."""

from __future__ import annotations

import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.http.conftest import Serve, Serving

pytestmark = pytest.mark.slow


def talk(shop: Serving, request: bytes, timeout: float = 10) -> bytes:
    """Sends bytes as they are and reads all that comes back."""
    with socket.create_connection(("127.0.0.1", shop.server.port), timeout) as connection:
        connection.sendall(request)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        return b"".join(parts)


def test_bodies_that_are_too_large(serve: Serve) -> None:
    shop = serve(limits={"body": 10_000})
    for path in ("/sql", "/streams/orders", "/explain"):
        answer = shop.client.post(path, content=b"x" * 10_001)
        assert answer.status_code == 413 and "10,000" in answer.json()["error"]["message"]
    pieces = shop.client.post("/streams/orders", content=(b"x" * 1_000 for _ in range(20)))
    assert pieces.status_code == 413
    packed = shop.client.post("/sql", content=b"x", headers={"Content-Encoding": "gzip"})
    assert packed.status_code == 415
    assert shop.client.get("/tables/items/rows", params={"where": "x" * 20_000}).status_code == 414
    assert shop.client.get("/health").status_code == 200


def test_a_body_that_does_not_come(serve: Serve) -> None:
    shop = serve(limits={"body_seconds": 0.2})
    said = talk(
        shop, b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{"
    )
    assert said.startswith(b"HTTP/1.1 408") and b"did not come within 0.2 s" in said


@pytest.mark.parametrize(
    "request_", [b"\r\n\r\n\r\nhello\r\n\r\n", b"GET /\x00 HTTP/9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"]
)
def test_what_is_not_http(shop: Serving, request_: bytes) -> None:
    assert talk(shop, request_ + b"\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert shop.client.get("/health").status_code == 200


LONG = " " * 5_000
"""Behind a statement it makes a text that has no plan: the statement needs the app's lock."""


def test_statements_that_take_too_long_and_too_many(serve: Serve) -> None:
    shop = serve(limits={"seconds": 1, "threads": 2, "waiting": 2})
    with shop.app._runtime.lock, ThreadPoolExecutor(3) as pool:
        # The app is busy: statements wait for their turn.
        change = "DELETE FROM items WHERE false" + LONG
        slow = [pool.submit(shop.sql, change) for _ in range(2)]
        answers = [s.result() for s in slow]
        assert [a.status_code for a in answers] == [504, 504]
        assert "within 1 s" in answers[0].json()["error"]["message"]
        busy = shop.sql(change)
        assert busy.status_code == 503 and busy.headers["retry-after"] == "1"
        assert shop.client.get("/tables/items/rows/a").status_code == 200  # lookups go on
        assert shop.client.get("/health").status_code == 200
    deadline = time.monotonic() + 20
    while shop.sql("SELECT COUNT(*) AS n FROM items").status_code != 200:
        assert time.monotonic() < deadline
    assert shop.app.sql("SELECT COUNT(*) AS n FROM items").rows() == [{"n": 4}]


def test_a_query_that_would_take_hours_is_ended(serve: Serve) -> None:
    """It would keep all other statements waiting."""
    shop = serve("CREATE TABLE t (id INT PRIMARY KEY)", limits={"seconds": 0.5})
    shop.app.table("t").bulk_insert([{"id": i} for i in range(20_000)])
    answer = shop.sql("SELECT COUNT(*) AS n FROM t a JOIN t b ON a.id <> b.id JOIN t c ON b.id <> c.id")
    assert answer.status_code == 504
    assert shop.app.sql("SELECT COUNT(*) AS n FROM t").rows() == [{"n": 20_000}]


def test_a_long_query_keeps_nobody_waiting(serve: Serve) -> None:
    """Neither in line for a thread nor for the app: others are answered while it runs."""
    shop = serve("CREATE TABLE t (id INT PRIMARY KEY)", limits={"seconds": 20, "threads": 1})
    shop.app.table("t").bulk_insert([{"id": i} for i in range(20_000)])
    slow = "SELECT COUNT(*) AS n FROM t a JOIN t b ON a.id <> b.id JOIN t c ON b.id <> c.id"
    with ThreadPoolExecutor(4) as pool:
        long = [pool.submit(shop.sql, slow) for _ in range(4)]
        for i in range(3):
            assert shop.sql(f"SELECT COUNT(*) AS n FROM t WHERE id % 7 > {i}").status_code == 200
            assert shop.sql(f"INSERT INTO t VALUES ({-i})").status_code == 200
            assert shop.client.get("/tables/t/rows", params={"where": "id < 3"}).status_code == 200
            assert not any(one.done() for one in long)
        assert {one.result().status_code for one in long} == {504}


def test_answers_that_are_too_large(serve: Serve) -> None:
    shop = serve("CREATE TABLE t (id INT PRIMARY KEY)", limits={"answer_rows": 100})
    shop.app.table("t").bulk_insert([{"id": i} for i in range(1_000)])
    answer = shop.sql("SELECT id FROM t WHERE id > 3")
    assert answer.status_code == 422 and "more than 100 rows" in answer.json()["error"]["message"]
    assert "LIMIT" in answer.json()["error"]["hint"]
    assert len(shop.sql("SELECT id FROM t WHERE id > 3 LIMIT 100").json()["rows"]) == 100
    # what stays in the app may be as large as it likes
    assert shop.sql("CREATE TABLE u AS SELECT id FROM t WHERE id > 3").status_code == 200
    assert shop.sql("SELECT COUNT(*) AS n FROM u").json()["rows"] == [{"n": 996}]


def test_lookups_that_find_too_much(serve: Serve) -> None:
    sql = "CREATE TABLE t (id INT PRIMARY KEY, kind STRING, s STRING)"
    shop = serve(sql, limits={"answer_rows": 20_000, "answer_bytes": 10_000_000})
    shop.app.table("t").bulk_insert(
        [{"id": i, "kind": "ab"[i % 3 == 0], "s": "x" * 1_000} for i in range(30_000)]
    )
    shop.app.table("t").bulk_insert([{"id": -i, "kind": "c", "s": "x"} for i in range(1, 20_002)])
    assert "more than 20,000 rows" in shop.sql("SELECT id FROM t WHERE kind = 'c'").text
    assert "more than 10,000,000 bytes" in shop.sql("SELECT s FROM t WHERE kind = 'b'").text
    assert len(shop.sql("SELECT id FROM t WHERE kind = 'b'").json()["rows"]) == 10_000
    long = "SELECT " + " || ".join(["s"] * 50) + " AS x FROM t WHERE kind = 'b' LIMIT 250"
    assert "more than 10,000,000 bytes" in shop.sql(long).text
    text = "SELECT " + " || ".join([":s"] * 50) + " AS x FROM t WHERE kind = 'c' LIMIT 200"
    assert "more than 20,000 bytes of a row" in shop.sql(text, {"s": "y" * 15_000}).text
    assert "more than 1,000,000 characters" in shop.sql(text, {"s": "y" * 100_000}).text
    many = "SELECT id FROM t WHERE " + " OR ".join(["id IN (:v)"] * 20)
    assert "more than 25,000 values" in shop.sql(many, {"v": list(range(2_000))}).text


def test_eight_at_once_do_not_take_the_process(serve: Serve) -> None:
    """What no engine can end in the middle, and none counts, is not begun."""
    shop = serve("CREATE TABLE t (id INT PRIMARY KEY, s STRING); INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    texts = [
        "SELECT repeat('x', 2000000000) AS x",
        "SELECT length(repeat(s, 2000000000)) AS x FROM t",
        "SELECT id FROM t WHERE s = lpad('x', 2000000000)",
        "SELECT array_repeat(s, 2000000000) AS x FROM t",
    ]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(shop.sql, texts * 6))
    assert {a.status_code for a in answers} == {422}
    assert all(a.json()["error"]["line"] == 1 and a.json()["error"]["hint"] for a in answers)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # it counts in KB
    where = shop.client.get("/tables/t/rows", params={"where": "s = repeat('x', 2000000000)"})
    assert where.status_code == 422 and where.json()["error"]["column"] == 5


def test_what_nobody_waits_for_is_not_begun(serve: Serve) -> None:
    shop = serve(limits={"seconds": 0.2})
    with shop.app._runtime.lock:
        assert shop.sql("INSERT INTO log VALUES ('late')" + LONG).status_code == 504
    deadline = time.monotonic() + 10
    while shop.server._service._threads.at_work:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(shop.app.table("log")) == 3


def test_a_client_that_never_reads(serve: Serve) -> None:
    """It holds its own connection, and nobody else's."""
    shop = serve("CREATE TABLE big (id INT PRIMARY KEY, name STRING)")
    shop.app.table("big").bulk_insert([{"id": i, "name": "x" * 100} for i in range(100_000)])
    stuck = []
    for _ in range(20):
        connection = socket.create_connection(("127.0.0.1", shop.server.port))
        connection.sendall(b"GET /tables/big/rows?limit=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        stuck.append(connection)
    for _ in range(20):
        assert shop.client.get("/tables/big/rows/7").json()["id"] == 7
    assert shop.client.get("/tables/big/rows?limit=10").json()["next"] == "9"
    for connection in stuck:
        connection.close()


def test_clients_that_leave_in_the_middle(serve: Serve) -> None:
    shop = serve()
    for request in (b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{", b"GET /tab"):
        connection = socket.create_connection(("127.0.0.1", shop.server.port))
        connection.sendall(request)
        connection.close()
    assert shop.client.get("/tables").status_code == 200


def test_closing_ends_the_server_and_not_the_app(serve: Serve) -> None:
    shop = serve()
    other = shop.app.serve()
    other.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", other.port), 1)
    assert shop.client.get("/health").status_code == 200
    shop.app.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", shop.server.port), 1)
