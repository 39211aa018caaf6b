"""H1: lookups and statements by key over HTTP, 10,000 of each at 32 connections, in a table of 100,000 rows.
V7: rows posted to a stream one by one, at 16 connections, while a live aggregate follows it.

Beside us: a plain Starlette route that returns a constant, on the same uvicorn: what HTTP costs here whatever it
answers; and Redis, asked for a hash over its own protocol. Each is asked by a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.figure import Figure
from bench.httpclient import KEYS
from millpond import App
from tests.servers import Servers

REQUESTS, CONNECTIONS = 10_000, 32
POSTING = 16
ROOT = Path(__file__).resolve().parent.parent
_WHAT = f"lookups by key over HTTP, {CONNECTIONS} connections"
_STATEMENTS = {
    "SELECT by key": "SELECT name FROM t WHERE id = {}",
    "UPDATE by key": "UPDATE t SET name = 'x{}' WHERE id = {}",
    "INSERT by key": "INSERT INTO t VALUES ({}, 'a', 'b', 'c')",
    "DELETE by key": "DELETE FROM t WHERE id = {}",
    "a small aggregate": "SELECT tier, COUNT(*) AS n FROM t WHERE id < {} GROUP BY tier",
}
_ROW = {"id": 7, "name": "name 7", "tier": "GOLD", "city": "Oslo"}


def run() -> Iterator[Figure]:
    ours = _ours()
    constant = _constant()
    redis = _redis()
    for name, peer in (("Starlette, a constant", constant), ("Redis, HGETALL", redis)):
        yield Figure("H1", _WHAT, ours[0], peer[0], name, unit="requests")
        for at, percent in ((1, 50), (2, 99)):
            what = f"{_WHAT}, p{percent}"
            yield Figure("H1", what, ours[at] * 1e6, peer[at] * 1e6, name, unit="µs", per="request")
    yield from _posts()
    for what, found in _statements():
        where = f"{what} over HTTP, {CONNECTIONS} connections"
        yield Figure("H1", where, found[0], constant[0], "Starlette, a constant", unit="requests")


def _posts() -> Iterator[Figure]:
    sql = "CREATE STREAM s (k INT, x INT);"
    sql += "CREATE TABLE t AS SELECT k, COUNT(*) AS n, SUM(x) AS x FROM s GROUP BY k"
    with tempfile.TemporaryDirectory() as state, App(sql, state=state) as app, app.serve() as server:
        ours = _asked(server.port, "post", '{"k": 7, "x": {}}', POSTING)
        peer = _sent(app)
    what, name = f"one row posted to a stream, {POSTING} connections", f"send() in {POSTING} threads"
    yield Figure("V7", what, ours[0], peer[0], name)
    for at, percent in ((1, 50), (2, 99)):
        yield Figure(
            "V7", f"{what}, p{percent}", ours[at] * 1e6, peer[at] * 1e6, name, unit="µs", per="request"
        )


def _sent(app: App) -> tuple[float, float, float]:
    """The same rows, sent by threads of the program."""

    def send(i: int) -> float:
        began = time.perf_counter()
        app.send("s", {"k": 7, "x": i})
        return time.perf_counter() - began

    began = time.perf_counter()
    with ThreadPoolExecutor(POSTING) as pool:
        cuts = quantiles(pool.map(send, range(REQUESTS // 4)), n=100)
    return REQUESTS / 4 / (time.perf_counter() - began), cuts[49], cuts[98]


def _asked(port: int, kind: str, what: str, connections: int = CONNECTIONS) -> tuple[float, float, float]:
    """Requests in a second, and the time of half and of 99 in 100 of them."""
    command = [
        sys.executable,
        "-m",
        "bench.httpclient",
        str(port),
        str(REQUESTS),
        str(connections),
        kind,
        what,
    ]
    for _ in range(2):  # the first warms up
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    cuts = quantiles(said["times"], n=100)
    return REQUESTS / said["seconds"], cuts[49], cuts[98]


def _ours() -> tuple[float, float, float]:
    with _served() as port:
        return _asked(port, "http", "/tables/t/rows/{}")


def _statements() -> Iterator[tuple[str, tuple[float, float, float]]]:
    with _served() as port:
        for what, text in _STATEMENTS.items():
            yield what, _asked(port, "sql", text)


@contextmanager
def _served() -> Iterator[int]:
    with App("CREATE TABLE t (id INT PRIMARY KEY, name STRING, tier STRING, city STRING)") as app:
        rows = [{"id": i, "name": f"name {i}", "tier": "GOLD", "city": "Oslo"} for i in range(KEYS)]
        app.table("t").bulk_insert(rows)
        with app.serve() as server:
            yield server.port


def _constant() -> tuple[float, float, float]:
    body = json.dumps(_ROW).encode()

    async def answer(request: Request) -> Response:
        return Response(body, media_type="application/json")

    with _uvicorn(Starlette(routes=[Route("/tables/{table}/rows/{key}", answer)])) as port:
        return _asked(port, "http", "/tables/t/rows/{}")


@contextmanager
def _uvicorn(app: Starlette) -> Iterator[int]:
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="off", http="httptools")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def _redis() -> tuple[float, float, float]:
    import redis

    servers = Servers()
    try:
        url = servers.redis.url(0)
        client = redis.Redis.from_url(url)
        with client.pipeline(transaction=False) as pipe:
            for i in range(KEYS):
                pipe.hset(f"t:{i}", mapping={**_ROW, "id": i, "name": f"name {i}"})
            pipe.execute()
        port = int(client.connection_pool.connection_kwargs["port"])
        return _asked(port, "redis", "t:{}")
    finally:
        servers.stop()
