"""An attack by somebody who may read: nothing secret comes out, nothing goes outside, nobody else is kept waiting."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.attack import SERVER, Asked, attacks
from tests.http.test_functions import Listener

TOKENS = {role: f"{role.lower()}-token-{os.urandom(12).hex()}" for role in ("READ", "WRITE", "ADMIN")}
WORD = f"secret-word-{os.urandom(12).hex()}"
PATIENCE = 10.0
"""Seconds that another client waits for an answer at the most."""
GIGABYTE = 1 << 30
COUNT = {"sql": "SELECT COUNT(*) AS n FROM t WHERE n = 3 AND id > 0"}


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Bystander:
    """Another client, who asks for a row and a count again and again; and the memory that the server takes."""

    def __init__(self, url: str, pid: int):
        self._client = httpx.Client(
            base_url=url, timeout=PATIENCE, headers={"Authorization": f"Bearer {TOKENS['READ']}"}
        )
        self._pid = pid
        self._stop = threading.Event()
        self.waited: list[float] = []
        self.wrong: list[str] = []
        self.most = 0
        self._threads = [threading.Thread(target=self._ask), threading.Thread(target=self._weigh)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._stop.wait(0.05):
            self._take(lambda: self._client.get("/tables/t/rows/7").json().get("s"), "text 7")
            self._take(lambda: self._client.post("/sql", json=COUNT).json().get("rows"), [{"n": 2857}])

    def _take(self, ask: Callable[[], Any], expected: Any) -> None:
        """Notes how long an answer took, and one that is not as expected."""
        began = time.monotonic()
        try:
            found = ask()
            if found != expected:
                self.wrong.append(f"{found}")
        except Exception as error:
            self.wrong.append(repr(error))
        self.waited.append(time.monotonic() - began)

    def _weigh(self) -> None:
        while not self._stop.wait(0.02):
            self.most = max(self.most, resident(self._pid))

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._client.close()


@pytest.mark.spark
def test_an_attack_with_a_token_for_reading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listener = Listener()
    secret = tmp_path / "secret.txt"
    secret.write_text(WORD)
    tokens = {f"MILLPOND_TOKEN_{role}": token for role, token in TOKENS.items()}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path / "state"), str(secret)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "log").open("wb"),
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "SECRET_WORD": WORD, **tokens},
    )
    try:
        assert process.stdout and process.stdin
        port = process.stdout.readline().strip()
        assert port, (tmp_path / "log").read_text()[-3_000:]
        url = f"http://127.0.0.1:{port}"
        before = resident(process.pid)
        other = Bystander(url, process.pid)
        with httpx.Client(
            base_url=url, timeout=60, headers={"Authorization": f"Bearer {TOKENS['READ']}"}
        ) as client:
            found = _attack(client, listener.port, str(secret))
        other.stop()
        _check_answers(found)
        assert listener.seen == []
        assert other.most - before < GIGABYTE
        assert not other.wrong
        quick = sum(waited < 1 for waited in other.waited)
        assert quick > 0.9 * len(other.waited), sorted(other.waited)[-20:]
        _check_alive(url)
    finally:
        process.communicate("", timeout=60)
        listener.close()
    assert process.returncode == 0
    with capsys.disabled():
        statuses = dict(sorted(Counter(str(f.status) for f in found).items()))
        print(
            f"\n{len(found)} requests {statuses}; the process grew by "
            f"{(other.most - before) >> 20} MB; another client: {len(other.waited)} requests, "
            f"median {statistics.median(other.waited):.2f} s, longest {max(other.waited):.2f} s"
        )


def _attack(client: httpx.Client, port: int, secret: str) -> list[Asked]:
    todo = attacks(port, secret)
    assert len(todo) >= 200
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda one: one(client), todo))


def _check_answers(found: list[Asked]) -> None:
    for asked in found:
        assert asked.status is None or asked.status != 500, (asked.what, asked.text[:500])
        for secret in (WORD, TOKENS["WRITE"], TOKENS["ADMIN"], "root:x:", "Traceback", "internal error"):
            assert secret not in asked.text, (asked.what, asked.text[:500])


def _check_alive(url: str) -> None:
    """All that was there is there, and the engines answer."""
    with httpx.Client(
        base_url=url, timeout=60, headers={"Authorization": f"Bearer {TOKENS['ADMIN']}"}
    ) as admin:
        deadline = time.monotonic() + 300
        while admin.post("/sql", json={"sql": "SELECT bin(5) AS b"}).status_code != 200:
            assert time.monotonic() < deadline
        asked = admin.post("/sql", json={"sql": "SELECT COUNT(*) AS n, MIN(s) AS s FROM t"})
        assert asked.json()["rows"] == [{"n": 20_000, "s": "text 0"}]
        assert admin.post("/streams/o", json=[{"id": 1, "s": "x"}]).status_code == 200
        assert (
            admin.post("/sql", json={"sql": "INSERT INTO t VALUES (-5, 'x', 1, array())"}).status_code == 200
        )
