"""kill -9 while clients post rows to a stream: each row that was acknowledged is there, and once.

This file is also the program that is killed. A live aggregate follows the stream meanwhile.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import pytest

from millpond import App

SQL = """
CREATE STREAM s (who INT, n INT);
CREATE TABLE counts AS SELECT who, n, COUNT(*) AS times FROM s GROUP BY who, n;
"""
CLIENTS = 8


def work(state: str) -> None:
    with App(SQL, state=state) as app, app.serve() as server:
        print(server.port, flush=True)
        time.sleep(600)


class Client(threading.Thread):
    """Posts one row after the other until the server is gone."""

    def __init__(self, port: int, who: int, first: int):
        super().__init__()
        self._port, self._who = port, who
        self.next = first
        """All rows before it are acknowledged."""
        self.wrong = 0

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        while True:
            row = {"who": self._who, "n": self.next}
            bad = self.next % 7 == 3
            try:
                if bad:
                    connection.request("POST", "/streams/s", json.dumps({**row, "n": "many"}))
                    self.wrong += connection.getresponse().read().startswith(b'{"rows"')
                connection.request("POST", "/streams/s", json.dumps(row))
                answer = connection.getresponse()
                if answer.read() != b'{"rows": 1}':
                    return
            except (OSError, http.client.HTTPException):
                return
            self.next += 1


def check_kills(state: Path, kills: int, seed: int) -> None:
    chance = Random(seed)
    acknowledged = [0] * CLIENTS
    for _ in range(kills):
        command = [sys.executable, "-m", "tests.test_kill_posts", str(state)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            port = int(program.stdout.readline())
            clients = [Client(port, who, first) for who, first in enumerate(acknowledged)]
            for client in clients:
                client.start()
            deadline = time.monotonic() + 30
            while all(c.next == a for c, a in zip(clients, acknowledged, strict=True)):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(chance.uniform(0.1, 0.5))
            program.kill()
        for client in clients:
            client.join()
        assert not any(client.wrong for client in clients)
        before, acknowledged = acknowledged, [client.next for client in clients]
        with App(SQL, state=state, _direct=True) as app:
            app.drain()
            found = {(r["who"], r["n"]): r["times"] for r in app.table("counts")}
            for who, (first, count) in enumerate(zip(before, acknowledged, strict=True)):
                assert count >= first and all(found[who, n] == 1 for n in range(count))
                # The last one may have been committed, and not acknowledged: then it is there.
                acknowledged[who] += (who, count) in found
                assert found.get((who, count), 1) == 1 and (who, count + 1) not in found
    assert sum(acknowledged) > CLIENTS


@pytest.mark.slow
def test_acknowledged_rows_are_there_once(tmp_path: Path) -> None:
    check_kills(tmp_path / "s", 2, 1)


@pytest.mark.chaos
def test_acknowledged_rows_after_many_kills(tmp_path: Path) -> None:
    check_kills(tmp_path / "s", 30, 2)


if __name__ == "__main__":
    work(sys.argv[1])
