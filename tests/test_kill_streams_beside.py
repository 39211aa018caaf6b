"""SIGKILL while a derived stream is built beside the old one, with what reads it: all are the old ones, or all the new.

This file is also the program that is killed.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from millpond import App
from millpond.testing.faults import killing
from tests.test_kill import running
from tests.test_streams_beside import ANEW, CHAIN, FILE, NEW, check_whole, send
from tests.test_upgrade import opened

AFTER = ("replace: journalled", "replace: shown")
POINTS = (
    ("replace: begun", 4),
    ("replace: caught up", len(CHAIN)),
    ("replace: stopped", 1),
    ("replace: journalled", 1),
    ("replace: shown", 1),
)


def killed(state: Path, how: str, point: str, visit: int) -> bool:
    args = (str(state), how, point, str(visit))
    with running(sys.executable, "-m", __name__, *args) as process:
        _, err = process.communicate(timeout=100)
        assert process.returncode in (0, -9), err
    return process.returncode == -9


@pytest.mark.slow
@pytest.mark.parametrize(("point", "visit"), POINTS[2:4])
def test_a_statement_is_killed(point: str, visit: int, tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        send(app, 0)
    assert killed(tmp_path, "statement", point, visit)
    with opened(FILE, tmp_path) as app:
        check_whole(app, NEW if point in AFTER else FILE, 0)
        send(app, 10)
        app.sql(ANEW)
        send(app, 20)
        check_whole(app, NEW, 0, 10, 20)


@pytest.mark.slow
@pytest.mark.parametrize(("point", "visit"), (POINTS[0], POINTS[3]))
def test_an_upgrade_is_killed(point: str, visit: int, tmp_path: Path) -> None:
    with opened(FILE, tmp_path) as app:
        send(app, 0)
    assert killed(tmp_path, "upgrade", point, visit)
    with opened(NEW, tmp_path) as app:
        send(app, 10)
        check_whole(app, NEW, 0, 10)


@pytest.mark.chaos
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(3))
def test_many_kills(seed: int, tmp_path: Path) -> None:
    """Streams are replaced there and back, and killed at points of the journal and of the swap."""
    chance, sent, kills = random.Random(seed), [0], 0
    points = [(p, v) for p, last in POINTS for v in range(1, last + 1)]
    points += [(p, v) for p in ("journal: written", "journal: committed") for v in range(1, 13)]
    with opened(FILE, tmp_path) as app:
        send(app, 0)
    for number in range(20):
        after = NEW if number % 2 == 0 else FILE
        for _ in range(chance.randint(1, 3)):
            point, visit = chance.choice(points)
            kills += killed(tmp_path, "there" if after == NEW else "back", point, visit)
        with opened(after, tmp_path, upgrade=True) as app:
            app.drain()
            check_whole(app, after, *sent)
            sent.append(10 * len(sent))
            send(app, sent[-1])
            check_whole(app, after, *sent)
    print(f"{kills} kills")
    assert kills > 10


def die(state: str, how: str, point: str, visit: str) -> None:
    if how == "statement":
        with App(FILE, state=state, _direct=True) as app, killing(point, visit=int(visit)):
            app.sql(ANEW)
        return
    text = FILE if how == "back" else NEW
    with killing(point, visit=int(visit)), App(text, state=state, _direct=True, upgrade=True) as app:
        app.drain()


if __name__ == "__main__":
    die(*sys.argv[1:])
