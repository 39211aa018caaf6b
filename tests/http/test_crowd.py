"""Five hundred clients follow a table while rows arrive: all see how it ends, and no commit waits for them."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.http.conftest import Serve, Serving

ROOT = Path(__file__).resolve().parent.parent.parent
KEYS = 2_000


def feed(shop: Serving, seconds: float, rows: int, seed: int) -> list[float]:
    """Sends ``rows`` a second, in commits of a tenth of that, for so long; answers how long each commit took."""
    table, chance, took = shop.app.table("t"), random.Random(seed), []
    for number in range(int(seconds * 10)):
        began = time.monotonic()
        keys = [f"k{chance.randrange(KEYS)}" for _ in range(rows // 10)]
        table.bulk_insert([{"k": k, "v": number} for k in keys])
        took.append(time.monotonic() - began)
        time.sleep(max(0.0, 0.1 - took[-1]))
    table.insert({"k": "end", "v": -1})
    return took


def run(shop: Serving, keys: int, everything: int, seconds: float, rows: int) -> dict[str, Any]:
    alone = feed(shop, 1.0, rows, 0)
    shop.app.table("t").delete("true")
    command = [
        sys.executable,
        "-m",
        "tests.http.crowd",
        str(shop.server.port),
        "t",
        str(keys),
        str(everything),
    ]
    # One that never reads is among them.
    stuck = socket.create_connection(("127.0.0.1", shop.server.port))
    stuck.sendall(b"GET /tables/t/changes HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == "following\n"
        took = feed(shop, seconds, rows, 1)
        said = json.loads(crowd.stdout.readline())
    stuck.close()
    return {**said, "alone": sorted(alone), "took": sorted(took)}


def check(shop: Serving, said: dict[str, Any]) -> None:
    expected = {r["k"]: r["v"] for r in shop.app.table("t").all_rows()}
    assert said["dropped"] == 0
    assert all(seen == expected for seen in said["all"])
    assert said["keys"] == {k: expected.get(k) for k in said["keys"]}


SQL = "CREATE TABLE t (k STRING PRIMARY KEY, v INT)"


@pytest.mark.slow
def test_many_clients(serve: Serve) -> None:
    shop = serve(SQL)
    check(shop, run(shop, 98, 2, 1.5, 10_000))


@pytest.mark.chaos
def test_five_hundred_clients(serve: Serve) -> None:
    shop = serve(SQL)
    said = run(shop, 490, 10, 20.0, 10_000)
    check(shop, said)
    took, alone = (1000 * said[name][len(said[name]) // 2] for name in ("took", "alone"))
    print(f"{said['events']} events; a commit took {took:.1f} ms (p50), without clients {alone:.1f} ms")
