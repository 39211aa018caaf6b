"""A kill on the way of a statement: after the restart it is there as a whole, and goes on, or nothing of it is.

Each app lives in a process of its own, which is ended by SIGKILL.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.testing.faults import killing, recorded
from tests.fingerprint import ELSEWHERE, kept
from tests.statement_kinds import KINDS, Kind, by_name, make_files, open_shop

SOME = (
    "derived stream",
    "table of groups in sqlite",
    "table of files",
    "table of tables",
    "running insert",
    "drop stream with all",
    "drop table in sqlite",
    "pause",
)
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.test_killed_starts"])
"""A process of the tests has threads, and cannot be forked; this one has none."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _build(directory: Path, name: str) -> None:
    """Makes the app in which the statement is to run, and is killed."""
    make_files(directory)
    open_shop(directory, by_name(name))
    die()


def _record(directory: Path, name: str, answers: Any) -> None:
    """Runs the statement, tells the points on its way, and is killed."""
    app = open_shop(directory, by_name(name))
    with recorded() as counts:
        app.sql(by_name(name).sql.format(dir=directory))
    answers.put(sorted(counts))
    answers.close()
    answers.join_thread()
    die()


def _run_into(directory: Path, name: str, point: str) -> None:
    """Runs the statement, and is killed at the point."""
    app = open_shop(directory, by_name(name))
    with killing(point):
        app.sql(by_name(name).sql.format(dir=directory))


def _look(directory: Path, answers: Any) -> None:
    """Restarts the app and tells what it is."""
    with App(state=directory / "state", _direct=True) as app:
        app._runtime.loader.wait()
        answers.put({key: text for key, text in kept(app).items() if key not in ELSEWHERE})


def _go_on(directory: Path, name: str, run: bool) -> None:
    """Restarts the app, runs the statement if it is not there, and others."""
    with open_shop(directory, by_name(name)) if run else App(state=directory / "state", _direct=True) as app:
        if run:
            app.sql(by_name(name).sql.format(dir=directory))
        app.sql("CREATE TABLE another (id INT); INSERT INTO another VALUES (1)")
        app.drain()


class Place:
    """Where the app of a kind of statement lives, from its beginning in each process."""

    def __init__(self, tmp_path: Path, kind: Kind):
        self.kind = kind.name
        self.directory = tmp_path / "app"
        self._first = tmp_path / "first"
        self.directory.mkdir()
        assert self.run(_build, self.kind) == -signal.SIGKILL
        shutil.copytree(self.directory, self._first)

    def begin(self) -> None:
        """As it was when the app was made."""
        shutil.rmtree(self.directory)
        shutil.copytree(self._first, self.directory)

    def run(self, work: Callable[..., None], *arguments: Any) -> int | None:
        process = PROCESSES.Process(target=work, args=(self.directory, *arguments))
        process.start()
        process.join(120)
        return process.exitcode

    def ask(self, work: Callable[..., None], *arguments: Any) -> Any:
        answers = PROCESSES.Queue()
        process = PROCESSES.Process(target=work, args=(self.directory, *arguments, answers))
        process.start()
        answer = answers.get(timeout=120)
        process.join(120)
        return answer


def check_kills(tmp_path: Path, kind: Kind, choose: Callable[[list[str]], list[str]]) -> None:
    place = Place(tmp_path, kind)
    before = place.ask(_look)
    place.begin()
    points = place.ask(_record, kind.name)
    after = place.ask(_look)
    for point in choose(points):
        place.begin()
        assert place.run(_run_into, kind.name, point) == -signal.SIGKILL
        now = place.ask(_look)
        if now not in (before, after):
            assert not {key: (before[key], now[key], after[key]) for key in now if now[key] != before[key]}, (
                point
            )
        assert place.run(_go_on, kind.name, now == before) == 0, point


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_killed_on_the_way(tmp_path: Path, name: str) -> None:
    check_kills(tmp_path, by_name(name), lambda points: [random.Random(name).choice(points)])


@pytest.mark.slow
def test_load_of_once_goes_on(tmp_path: Path) -> None:
    """A table that reads its source once has read it to the end, also if that took two lives."""
    check_kills(tmp_path, by_name("table of files, once"), lambda _: ["load: chunk read"])


@pytest.mark.chaos
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_killed_at_every_step(tmp_path: Path, kind: Kind) -> None:
    check_kills(tmp_path, kind, lambda points: points)
