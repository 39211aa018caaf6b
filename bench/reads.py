"""P2: lookups by key beside eight clients whose queries take about a second, in a table of 1,000,000 rows.

Their time, that of 99 in 100, beside that of the same lookups alone in the same run, and beside as many processes as
there are processors that do nothing but count: what the operating system takes to give a lookup its turn. In the
process a lookup is due every millisecond, and its time counts from then on; over HTTP one connection asks again when it
has its answer. The same lookups beside one SELECT from a source that does not answer meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import quantiles

import pyarrow as pa

from bench.figure import Figure
from millpond import App

ROWS, CLIENTS, SECONDS = 1_000_000, 8, 8.0
_EVERY = 0.001
_REQUESTS = 5_000
_LOOKUP = "SELECT name FROM t WHERE id = {}"
_SLOW = """
SELECT COUNT(*) AS n FROM (SELECT (a.qty * b.id + {}) % 7 AS k FROM t a CROSS JOIN (SELECT id FROM t WHERE id < {}) b)
WHERE k = 3"""
_ROOT = Path(__file__).resolve().parent.parent


def run() -> Iterator[Figure]:
    with App("CREATE TABLE t (id INT PRIMARY KEY, name STRING, qty INT)") as app:
        numbers = range(ROWS)
        app.table("t").bulk_insert(
            pa.table(
                {
                    "id": pa.array(numbers, pa.int32()),
                    "name": [f"name {i % 1_000}" for i in numbers],
                    "qty": pa.array([i % 97 for i in numbers], pa.int32()),
                }
            )
        )
        size = _a_second(app)
        ways: dict[str, Callable[[], list[float]]] = {
            "in the process": lambda: _due(app),
            "over HTTP": lambda: _over_http(app),
        }
        for where, measure in ways.items():
            measure()
            alone = _p99(measure())
            with _counting():
                full = _p99(measure())
            with _slow_source(app):
                waiting = _p99(measure())
            with _busy(app, size):
                beside = _p99(measure())
            what = f"lookups {where} beside {CLIENTS} clients with queries of 1 s, p99"
            for peer, time_of in (("alone", alone), ("beside processes that count", full)):
                yield Figure("P2", what, beside * 1e6, time_of * 1e6, peer, unit="µs", per="lookup")
            what = f"lookups {where} beside a SELECT from a slow source, p99"
            yield Figure("P2", what, waiting * 1e6, alone * 1e6, "alone", unit="µs", per="lookup")


def _a_second(app: App) -> int:
    """How large the query is that takes about a second alone."""
    app.sql(_SLOW.format(0, 5)).rows()
    began = time.perf_counter()
    app.sql(_SLOW.format(1, 20)).rows()
    return max(1, round(20 / (time.perf_counter() - began)))


@contextmanager
def _busy(app: App, size: int) -> Iterator[None]:
    """Eight clients ask meanwhile."""
    end = threading.Event()

    def ask(client: int) -> None:
        while not end.is_set():
            app.sql(_SLOW.format(client, size)).rows()

    clients = [threading.Thread(target=ask, args=(n,)) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    time.sleep(1)
    try:
        yield
    finally:
        end.set()
        for client in clients:
            client.join()


@contextmanager
def _slow_source(app: App) -> Iterator[None]:
    """One SELECT reads a source that answers at the end."""
    asked, end = threading.Event(), threading.Event()

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.set()
            end.wait()
            body = b'[{"id": 1}]'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found: list[object] = []
        text = f"SELECT id FROM http://127.0.0.1:{server.server_port}/rows"
        reader = threading.Thread(target=lambda: found.extend(app.sql(text).rows()))
        reader.start()
        try:
            assert asked.wait(20), "the source was not read"
            yield
        finally:
            end.set()
            reader.join()
            server.shutdown()
    assert found == [{"id": 1}], found


@contextmanager
def _counting() -> Iterator[None]:
    """Every processor has something to do that is not the app's."""
    command = [sys.executable, "-c", "n = 0\nwhile True: n += 1"]
    processes = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    time.sleep(1)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _due(app: App) -> list[float]:
    """Seconds from when each lookup was due to its answer."""
    times, key, due = [], 0, time.perf_counter()
    for _ in range(round(SECONDS / _EVERY)):
        due += _EVERY
        if (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        key = (key + 7919) % ROWS
        assert app.sql(_LOOKUP.format(key)).rows()
        times.append(time.perf_counter() - due)
    return times


def _over_http(app: App) -> list[float]:
    server = app.serve()
    try:
        port = server.url.rpartition(":")[2]
        command = [sys.executable, "-m", "bench.httpclient", port, str(_REQUESTS), "1", "sql", _LOOKUP]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True)
        times: list[float] = json.loads(done.stdout)["times"]
        return times
    finally:
        server.close()


def _p99(times: list[float]) -> float:
    return quantiles(times, n=100)[98]
