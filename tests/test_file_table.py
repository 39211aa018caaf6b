"""A process that may open no more files: what was sent is there, what was not is told, and afterwards all goes on."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from millpond import App

pytestmark = pytest.mark.slow

BEGIN = """
import os, resource, sys
import httpx
from millpond import App

SQL = "CREATE STREAM s (id INT, x STRING); CREATE TABLE t (id INT PRIMARY KEY, x STRING)"
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def few(count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


app = App(SQL, state=sys.argv[1])
server = app.serve()
client = httpx.Client(base_url=server.url, timeout=60)
sent, number = [], 0


def send(count, size):
    global number
    rows = [{"id": number + i, "x": "y" * size} for i in range(count)]
    number += count
    answer = client.post("/streams/s", json=rows)
    assert answer.status_code in (200, 503), answer.text
    assert "internal" not in answer.text
    if answer.status_code == 200:
        sent.extend(row["id"] for row in rows)
    return answer.status_code
"""
END = """
assert send(1, 10) == send(20_000, 100) == 200
assert client.post("/sql", json={"sql": "SELECT COUNT(*) AS n FROM t"}).status_code == 200
open(sys.argv[1] + ".sent", "w").write(" ".join(map(str, sent)))
os._exit(0)  # as a kill would
"""
FULL = """
assert send(1, 10) == 200
few(len(os.listdir("/proc/self/fd")) + 20)
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
codes = {send(1, 10), send(50, 1_000), send(20_000, 100)}
for i in range(60):
    codes.add(send(50, 1_000))
assert 200 in codes and 503 in codes, codes
for text in ("SELECT COUNT(*) AS n FROM t", "INSERT INTO t VALUES (1, 'a')", "SELECT upper(x) AS u FROM t"):
    answer = client.post("/sql", json={"sql": text})
    assert answer.status_code in (200, 503) and "internal" not in answer.text, answer.text
for file in held:
    os.close(file)
few(hard)
"""
CROWD = """
few(len(os.listdir("/proc/self/fd")) + 320)
assert send(1, 10) == 200
print(server.port, flush=True)
input()
assert send(20_000, 100) == send(50, 1_000) == 200
files = len(os.listdir("/proc/self/fd"))
assert files < resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 100, files
few(hard)
print("sent", flush=True)
input()
"""


def start(state: Path, middle: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + middle + END, str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )


def check_rows(state: Path) -> None:
    """What was answered with 200 is there, each row once, and nothing else."""
    sent = [int(i) for i in Path(f"{state}.sent").read_text().split()]
    with App(
        "CREATE STREAM s (id INT, x STRING); CREATE TABLE t (id INT PRIMARY KEY, x STRING);"
        "CREATE TABLE c AS SELECT id FROM s",
        state=state,
        _direct=True,
    ) as app:
        app.drain()
        assert Counter(r["id"] for r in app.sql("SELECT id FROM c").rows()) == Counter(sent)


def test_a_full_file_table(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] > 500
    with start(tmp_path / "state", FULL) as process:
        _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors[-3_000:]
    check_rows(tmp_path / "state")


def test_a_crowd_does_not_fill_it(tmp_path: Path) -> None:
    """Connections take no files that the app needs."""
    with start(tmp_path / "state", CROWD) as process:
        assert process.stdout and process.stdin
        port = process.stdout.readline()
        if port:
            crowd = [socket.create_connection(("127.0.0.1", int(port)), 30) for _ in range(400)]
            process.stdin.write("go\n")
            process.stdin.flush()
            process.stdout.readline()
            for connection in crowd:
                connection.close()
        _, errors = process.communicate("go on\n", timeout=180)
    assert process.returncode == 0, errors[-3_000:]
    check_rows(tmp_path / "state")
