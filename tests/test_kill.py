"""kill -9 at any moment, start again: the result is as if nothing had happened.

This file is also the program that is killed: it loads a table, sends rows to a stream and notes each row that
`send` has confirmed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from millpond import App

REFERENCE = 200_000
EVENTS = 60
SQL = """
CREATE TABLE reference (PRIMARY KEY (id)) AS SELECT * FROM file://{csv};
CREATE STREAM events (n BIGINT, ref BIGINT);
CREATE TABLE joined (n BIGINT, name STRING);
CREATE TABLE last (ref BIGINT PRIMARY KEY, n BIGINT);
INSERT INTO joined SELECT e.n, r.name FROM events e LEFT JOIN reference r ON r.id = e.ref;
INSERT INTO last SELECT ref, n FROM events;
CREATE TABLE fifths (n BIGINT, x BIGINT);
INSERT INTO fifths SELECT n, 100 DIV (n % 5) FROM events WITH ('query.name' = 'fifths');
CREATE TABLE sums AS SELECT n % 3 AS k, COUNT(*) AS rows, SUM(ref) AS refs FROM events GROUP BY n % 3;
CREATE TABLE stock (item BIGINT PRIMARY KEY, stock BIGINT, orders BIGINT);
INSERT INTO stock VALUES (0, 300, 0), (1, 10000, 0), (2, 10000, 0);
UPDATE stock SET stock = stock - e.n, orders = orders + 1 FROM events e
WHERE stock.item = e.n % 3 AND stock.stock >= e.n;
CREATE TABLE balances (id BIGINT PRIMARY KEY, n BIGINT);
CREATE TABLE ledger (n BIGINT, id BIGINT);
INSERT INTO balances VALUES (0, 0);
BEGIN;
INSERT INTO ledger SELECT n, n % 2 FROM events;
MERGE INTO balances b USING events e ON b.id = e.n % 2
WHEN MATCHED THEN UPDATE SET n = b.n + e.n WHEN NOT MATCHED THEN INSERT VALUES (e.n % 2, e.n);
COMMIT;
"""
CHECKSUM = "SELECT COUNT(*) AS n, SUM(id) AS ids, SUM(x) AS x, COUNT(DISTINCT name) AS names FROM reference"
EXPECTED = {
    "n": REFERENCE,
    "ids": sum(range(REFERENCE)),
    "x": sum(i * 7 % 1000 for i in range(REFERENCE)),
    "names": REFERENCE,
}


def write_reference(path: Path) -> None:
    path.write_text("id,name,x\n" + "".join(f"{i},name-{i},{i * 7 % 1000}\n" for i in range(REFERENCE)))


def event(n: int) -> dict[str, int]:
    return {"n": n, "ref": n * 3501 % (REFERENCE + 20_000)}


# the program that is killed


def work(sql: str, state: str, confirmed: str) -> None:
    say("start")
    with App(sql, state=state, _on_progress=lambda progress: say("loading")) as app:
        say("ready")
        with open(confirmed, "a+") as notes:
            notes.seek(0)
            sent = app._runtime.journal.stream_end("events")
            assert sent >= len(notes.readlines()), "a row that send has confirmed is lost"
            for n in range(sent, EVENTS):
                app.send("events", event(n))
                notes.write(f"{n}\n")
                notes.flush()
                say("sent")
        app.drain(timeout=300)
        say("drained")
        result = {
            "reference": app.sql(CHECKSUM).rows()[0],
            "joined": sorted([r["n"], r["name"]] for r in app.table("joined")),
            "last": {str(r["ref"]): r["n"] for r in app.table("last")},
            "fifths": sorted(r["n"] for r in app.table("fifths")),
            "aside": sorted(r["seq"] for r in app.sql("SELECT seq FROM fifths$errors").rows()),
            "sums": sorted([r["k"], r["rows"], r["refs"]] for r in app.table("sums")),
            "stock": sorted([r["item"], r["stock"], r["orders"]] for r in app.table("stock")),
            "ledger": sorted([r["n"], r["id"]] for r in app.table("ledger")),
            "balances": sorted([r["id"], r["n"]] for r in app.table("balances")),
        }
        print(json.dumps(result), flush=True)


def say(what: str) -> None:
    print(what, flush=True)


# the killer


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        # Spark's Java ends by itself when its parent is gone; a test run leaves nothing behind in any case.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def kill_after(process: subprocess.Popen[str], word: str, times: int, delay: float) -> None:
    """Kills the process some time after it has said the word so many times, or lets it end before."""
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:
        seen += line.strip() == word
        if seen >= times:
            break
    time.sleep(delay)
    process.kill()
    process.wait(60)


def run_to_the_end(*arguments: str, timeout: float = 400) -> str:
    with running(*arguments) as process:
        out, err = process.communicate(timeout=timeout)
        assert process.returncode == 0, err
        return out


def moments(kills: int, seed: int) -> Iterator[tuple[str, int, float]]:
    """Word, times and delay of each kill: while it loads, while it starts, between rows."""
    choice = random.Random(seed)
    phases = [("start", 1, 1.5), ("ready", 1, 1.0), ("sent", EVENTS // 2, 0.5), ("loading", 1, 0.3)]
    for number in range(kills):
        word, most, delay = phases[number % len(phases)]
        yield word, choice.randint(1, most), choice.uniform(0, delay)


def check_kills(tmp_path: Path, kills: int, seed: int) -> None:
    write_reference(tmp_path / "reference.csv")
    sql = SQL.format(csv=tmp_path / "reference.csv")
    command = (sys.executable, "-m", __name__, sql, str(tmp_path / "state"), str(tmp_path / "confirmed"))
    for moment in moments(kills, seed):
        with running(*command) as process:
            kill_after(process, *moment)
    result: dict[str, Any] = json.loads(run_to_the_end(*command).splitlines()[-1])
    assert result["reference"] == EXPECTED
    events = [event(n) for n in range(EVENTS)]
    names = {e["ref"]: f"name-{e['ref']}" if e["ref"] < REFERENCE else None for e in events}
    assert result["joined"] == [[e["n"], names[e["ref"]]] for e in events]
    assert result["last"] == {str(e["ref"]): e["n"] for e in events}
    assert result["fifths"] == [n for n in range(EVENTS) if n % 5]
    assert result["aside"] == list(range(0, EVENTS, 5))
    assert result["sums"] == [[k, EVENTS // 3, sum(e["ref"] for e in events[k::3])] for k in range(3)]
    stock = {0: [300, 0], 1: [10_000, 0], 2: [10_000, 0]}
    for e in events:
        if stock[e["n"] % 3][0] >= e["n"]:
            stock[e["n"] % 3][0] -= e["n"]
            stock[e["n"] % 3][1] += 1
    assert result["stock"] == [[item, *left] for item, left in stock.items()]
    assert result["ledger"] == [[n, n % 2] for n in range(EVENTS)]
    assert result["balances"] == [[i, sum(range(i, EVENTS, 2))] for i in range(2)]


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(5))
def test_many_kills(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, kills=20, seed=seed)


@pytest.mark.slow
def test_kills_of_a_load_by_the_command_line(tmp_path: Path) -> None:
    """Without a stream no Spark is started: only the load is cut off, again and again."""
    write_reference(tmp_path / "reference.csv")
    app = tmp_path / "app.sql"
    app.write_text(
        f"CREATE TABLE reference (PRIMARY KEY (id)) AS SELECT * FROM file://{tmp_path}/reference.csv;"
    )
    millpond = str(Path(sys.executable).with_name("millpond"))
    state = str(tmp_path / "state")
    choice = random.Random(2)
    for _ in range(20 if os.environ.get("MILLPOND_CHAOS") else 4):
        with running(millpond, "run", str(app), "--state", state) as process:
            time.sleep(choice.uniform(0.3, 2.5))
            process.kill()
            process.wait(60)
    run_to_the_end(millpond, "run", str(app), "--state", state, "--once")
    with App(state=state) as again:
        assert again.sql(CHECKSUM).rows() == [EXPECTED]


if __name__ == "__main__":
    work(*sys.argv[1:])
