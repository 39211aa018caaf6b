"""Connections: only so many, the head of every request in time and in few bytes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from tests.http.conftest import Serve, Serving

pytestmark = pytest.mark.slow

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(shop: Serving) -> socket.socket:
    return socket.create_connection(("127.0.0.1", shop.server.port), 20)


def ends(connection: socket.socket) -> bytes:
    """All that comes until the server ends the connection."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def is_answered(connection: socket.socket) -> bool:
    """Whether a request on the connection gets its answer, which is read to its end."""
    connection.sendall(HEALTH)
    said = b""
    while not said.endswith(b"}") and (part := connection.recv(65536)):
        said += part
    return said.startswith(b"HTTP/1.1 200")


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    "said", [b"", b"GET /heal", b"\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "]
)
def test_a_head_that_does_not_come(serve: Serve, said: bytes) -> None:
    shop = serve(limits={"head_seconds": 0.5})
    with connect(shop) as first:
        first.sendall(said)
        assert ends(first) == b""
    # nor the head of a later request on the same connection
    with connect(shop) as second:
        assert is_answered(second)
        if said:
            second.sendall(said)
            assert ends(second) == b""
    assert shop.client.get("/health").status_code == 200


def test_a_head_that_comes_byte_by_byte(serve: Serve) -> None:
    """Bytes that keep coming do not give it more time."""
    shop = serve(limits={"head_seconds": 1})
    with connect(shop) as connection, pytest.raises(OSError):
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(400):
            connection.sendall(b"X: y\r\n")
            time.sleep(0.05)


def test_an_answer_that_takes_longer_than_a_head_may(serve: Serve) -> None:
    shop = serve(limits={"head_seconds": 0.3})
    with shop.client.stream("GET", "/tables/items/changes") as answer:
        lines = answer.iter_lines()
        next(lines)
        time.sleep(0.8)
        shop.app.sql("INSERT INTO items VALUES ('new', 'New', 1)")
        assert any("New" in line for line in lines)


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 20_000 + b"\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /sql HTTP/1.1\r\nContent-Length: 3\r\nX-Long: " + b"x" * 70_000 + b"\r\n\r\nabc",
        b"GET /health HTTP/1.1\r\nX-Never-Ends: " + b"x" * 1_000_000,
    ],
)
def test_heads_that_are_too_large(shop: Serving, request_: bytes) -> None:
    with connect(shop) as connection:
        try:
            for at in range(0, len(request_), 10_000):
                connection.sendall(request_[at : at + 10_000])
        except ConnectionError:
            pass  # it was told before it had sent all
        said = ends(connection)
        assert not said or (said.startswith(b"HTTP/1.1 431") and b"larger than 65,536 bytes" in said)
    assert shop.client.get("/health").status_code == 200


def test_a_large_head_is_told_so(shop: Serving) -> None:
    answer = shop.client.get("/health", headers={"X-Long": "x" * 66_000})
    assert answer.status_code == 431 and answer.json()["error"]["code"] == "too_large"
    assert shop.client.get("/health", headers={"X-Long": "x" * 60_000}).status_code == 200


def test_too_many_connections(serve: Serve) -> None:
    shop = serve(limits={"connections": 20})
    assert shop.client.get("/health").status_code == 200  # its connection stays open
    crowd = [connect(shop) for _ in range(19)]
    assert all(is_answered(connection) for connection in crowd)
    for _ in range(30):
        with connect(shop) as one_more:
            said = ends(one_more)
            assert said.startswith(b"HTTP/1.1 503") and b"20 connections are open" in said
    assert shop.client.get("/tables/items/rows/a").status_code == 200
    for connection in crowd:
        connection.close()

    def is_taken() -> bool:
        with connect(shop) as again:
            return is_answered(again)

    until(is_taken)
