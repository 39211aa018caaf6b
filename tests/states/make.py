"""Makes a state directory for ``tests/test_states.py`` with the Millpond that is installed, and packs it.

    python -m tests.states.make 0.1-format-3

The app is killed, so that the directory is as a crash leaves it: a write-ahead log, segments in files, a batch that
was sent and not applied. Beside it go the rows that all tables hold when the app has gone on to the end.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from millpond import App

HERE = Path(__file__).resolve().parent
SQL = (HERE / "app.sql").read_text()
ZERO = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
Sends = list[tuple[str, list[dict[str, Any]]]]


def trade(number: int) -> dict[str, Any]:
    """One of every seven trades is late, every tenth is of a user that is not known."""
    seconds = number / 10 - (30 if number % 7 == 6 else 0)
    return {
        "id": number,
        "symbol": ("ACME", "GLOB", None, "UMBR")[number % 4],
        "user_id": None if number % 11 == 10 else 1 + number % 10 // 4,
        "price": f"{number % 17}.{number % 9999:04}",
        "qty": number % 100,
        "ts": ZERO + dt.timedelta(seconds=seconds),
    }


def fill(number: int) -> dict[str, Any]:
    return {
        "trade_id": number * 3,
        "venue": f"v{number % 5}",
        "ts": ZERO + dt.timedelta(seconds=number * 0.3 + 2),
    }


def sends(first: int, end: int) -> Sends:
    """Rows in pieces of several sizes, those from ``first`` up to ``end``."""
    found: Sends = []
    at = first
    while at < end:
        size = (1, 7, 100, 3)[len(found) // 2 % 4]
        found.append(("trades", [trade(n) for n in range(at, min(at + size, end))]))
        found.append(("fills", [fill(n) for n in range(at // 3, min(at + size, end) // 3)]))
        at += size
    return [(stream, rows) for stream, rows in found if rows]


def log(first: int) -> tuple[str, list[dict[str, Any]]]:
    """Enough for a file of its own."""
    return ("logs", [{"n": n, "line": f"{n} " * 300} for n in range(first, first + 1_000)])


BEFORE = [*sends(0, 250), log(0), log(500), *sends(250, 300)]
"""What the app had applied."""
WAITING = [("trades", [trade(n) for n in range(300, 320)]), log(1_400)]
"""What had been sent to it."""
AFTER = [*sends(320, 400), log(2_000)]
"""What is sent when it goes on."""


def run(app: App, sent: Sends) -> None:
    for stream, rows in sent:
        app.send(stream, rows)
        app.drain()


def go_on(app: App) -> None:
    """What happens after the crash; rows that waited for their match find it."""
    app.drain()
    run(app, AFTER)
    app.sql("INSERT INTO users VALUES (3, 'Carol', array('c'), named_struct('city', 'Bonn', 'zip', 53111))")
    app.drain()


def contents(app: App) -> dict[str, list[str]]:
    """All rows of all tables, as text; long ones by their checksum."""
    found = {
        name: app.sql(f"SELECT * FROM `{name}`").rows() for name in (*app.tables(), "ratios$errors", "rich")
    }
    for row in found["ratios$errors"]:
        del row["time"]
    return {name: sorted(_text(row) for row in rows) for name, rows in found.items()}


def _text(row: dict[str, Any]) -> str:
    text = repr(row)
    return text if len(text) < 1_000 else hashlib.sha256(text.encode()).hexdigest()[:16]


def make(state: str) -> None:
    """Runs the app up to the moment of the crash."""
    app = App(SQL, state=state, _direct=True)
    run(app, BEFORE)
    app._runtime.runner.crash()
    for stream, rows in WAITING:
        app.send(stream, rows)
    os.kill(os.getpid(), signal.SIGKILL)


def expected() -> dict[str, list[str]]:
    """What the tables hold at the end of an app that was never cut off."""
    with App(SQL, _direct=True) as app:
        run(app, BEFORE)
        for stream, rows in WAITING:
            app.send(stream, rows)
        go_on(app)
        return contents(app)


def main() -> None:
    if sys.argv[1] == "make":
        make(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder, "state")
        done = subprocess.run([sys.executable, "-m", "tests.states.make", "make", str(state)])
        assert done.returncode == -signal.SIGKILL
        with tarfile.open(HERE / f"{sys.argv[1]}.tar.xz", "w:xz") as packed:
            for path in sorted(state.rglob("*")):
                name = path.relative_to(state)
                if path.is_file() and name.parts[0] not in ("scratch", "spark"):
                    packed.add(path, str(name), filter=_plain)
    rows = HERE / f"{sys.argv[1].partition('-')[0]}.json"
    rows.write_text(json.dumps(expected(), indent=1, ensure_ascii=False) + "\n")


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of the machine that packed it."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main()
