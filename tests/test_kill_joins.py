"""kill -9 while two streams are joined: no pair is missed, none comes twice, whichever side was committed last.

This file is also the program that is killed.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from tests.test_kill import kill_after, run_to_the_end, running, say

ON = "o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 10 SECONDS"
SQL = f"""
CREATE STREAM orders (id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 30 SECONDS);
CREATE STREAM payments (order_id BIGINT, n BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 30 SECONDS);
CREATE TABLE lefts AS SELECT o.id, p.n FROM orders o LEFT JOIN payments p ON {ON};
CREATE TABLE totals AS SELECT o.id % 5 AS k, COUNT(*) AS n, SUM(p.n) AS s
FROM orders o JOIN payments p ON {ON} GROUP BY o.id % 5;
CREATE STREAM pairs AS SELECT o.id, p.n FROM orders o JOIN payments p ON {ON};
CREATE TABLE seen (id BIGINT, n BIGINT);
INSERT INTO seen SELECT * FROM pairs;
"""
BATCH = 25


def at(seconds: int) -> str:
    return (dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)).isoformat()


def order_time(n: int) -> int:
    return n + n * 7 % 11


def payment(n: int) -> tuple[int, int]:
    """The order that it is for, and its time: some before the order, some too late after it."""
    order = n + n * 5 % 8 - 4
    return order, order_time(order) + n * 13 % 17 - 3


def rows(stream: str, start: int, end: int) -> list[dict[str, Any]]:
    if stream == "orders":
        return [{"id": n, "ts": at(order_time(n))} for n in range(start, end)]
    found = [(n, *payment(n)) for n in range(start, end)]
    return [{"order_id": order, "n": n, "ts": at(time)} for n, order, time in found]


def pairs(events: int) -> list[list[int]]:
    found = [(n, *payment(n)) for n in range(events)]
    return sorted(
        [order, n]
        for n, order, time in found
        if 0 <= order < events and order_time(order) <= time <= order_time(order) + 10
    )


def work(state: str, confirmed: str, events: int, how: str) -> None:
    say("start")
    direct = how == "direct"
    with App(SQL, state=state, engine="spark" if how == "spark" else "auto", _direct=direct) as app:
        say("ready")
        notes = Path(confirmed)
        known: dict[str, int] = json.loads(notes.read_text()) if notes.exists() else {}
        ends = {name: app._runtime.journal.stream_end(name) for name in ("orders", "payments")}
        assert all(ends[name] >= count for name, count in known.items()), "confirmed rows are lost"
        while min(ends.values()) < events:
            # The stream that is behind, so that after a kill either one may go first.
            name = min(ends, key=lambda n: (ends[n], n))
            end = min(events, ends[name] + BATCH)
            app.send(name, rows(name, ends[name], end))
            ends[name] = end
            notes.with_suffix(".new").write_text(json.dumps(ends))
            notes.with_suffix(".new").replace(notes)
            say("sent")
            if direct:
                app.drain()
        app.drain(timeout=300)
        say("drained")
        kept = {
            side: len(app._runtime.store.table(f"table:lefts${side}") or ()) for side in ("left", "right")
        }
        for name in ("orders", "payments"):
            app.send(name, {"ts": at(10 * events)})
        app.drain(timeout=300)
        result = {
            "lefts": sorted([r["id"] or -1, r["n"]] for r in app.table("lefts") if r["n"] is not None),
            "alone": sorted(r["id"] for r in app.table("lefts") if r["n"] is None and r["id"] is not None),
            "totals": sorted([r["k"], r["n"], r["s"]] for r in app.table("totals")),
            "seen": sorted([r["id"], r["n"]] for r in app.table("seen")),
            "kept": kept,
        }
        print(json.dumps(result), flush=True)


def check_kills(tmp_path: Path, *, events: int, kills: int, seed: int, how: str) -> None:
    choice = random.Random(seed)
    state, confirmed = str(tmp_path / "state"), str(tmp_path / "confirmed")
    command = (sys.executable, "-m", __name__, state, confirmed, str(events), how)
    for _ in range(kills):
        times = choice.randint(1, 2 * events // BATCH // (kills + 1) * 2)
        with running(*command) as process:
            kill_after(process, "sent", times, choice.uniform(0, 0.2 if how == "direct" else 3))
    result = json.loads(run_to_the_end(*command).splitlines()[-1])
    wanted = pairs(events)
    met = {order for order, _ in wanted}
    assert result["lefts"] == [[order or -1, n] for order, n in wanted]
    assert result["alone"] == [n for n in range(events) if n not in met]
    assert result["seen"] == wanted
    groups = {order % 5 for order, _ in wanted}
    sums = [[n for order, n in wanted if order % 5 == k] for k in sorted(groups)]
    assert result["totals"] == [[k, len(s), sum(s)] for k, s in zip(sorted(groups), sums, strict=True)]
    # What is kept follows the watermarks, not the streams.
    assert max(result["kept"].values()) < 100


@pytest.mark.slow
def test_a_few_kills(tmp_path: Path) -> None:
    """Batches are handed over without Spark, so that processes start fast."""
    check_kills(tmp_path, events=400, kills=4, seed=1, how="direct")


@pytest.mark.slow
def test_kills_while_spark_finds_the_pairs(tmp_path: Path) -> None:
    check_kills(tmp_path, events=100, kills=1, seed=2, how="spark")


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(3))
def test_many_kills(tmp_path: Path, seed: int) -> None:
    """Both streams are read by queries of Spark, side by side."""
    check_kills(tmp_path, events=20_000, kills=20, seed=seed, how="auto")


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
