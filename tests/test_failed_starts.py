"""A statement that fails leaves nothing behind: every kind of statement, made to fail at every step on its way."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from millpond import App, Error
from millpond.errors import QueryFailed
from millpond.sql import statements as st
from millpond.testing.faults import Injected, failing, recorded
from tests.fingerprint import ELSEWHERE, fingerprint
from tests.statement_kinds import KINDS, REFUSED, Kind, classes_of, make_files, open_shop

pytestmark = pytest.mark.slow

Fault = tuple[str, int, type[Exception]]
FAILURES: tuple[type[Exception], ...] = (QueryFailed, Injected)
"""An error of ours, and one that no code expects."""
MOST = 3
"""Visits of one point at which a statement is made to fail."""


def test_every_class_of_statements_has_its_kind() -> None:
    known = {c for kind in KINDS for c in classes_of(kind)} | REFUSED
    classes = {c for c in vars(st).values() if isinstance(c, type) and issubclass(c, st.Statement)}
    assert classes - known - {st.Statement, st.Block} == set()


def differing(before: dict[str, str], after: dict[str, str]) -> dict[str, tuple[str, str]]:
    return {key: (before[key], after[key]) for key in before if before[key] != after[key]}


@contextmanager
def shop(directory: Path, kind: Kind) -> Iterator[tuple[App, str]]:
    """An app in which the statement can run, and its text. All are in the same directory, one after the other: names of
    statements have a checksum of their paths."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    make_files(directory)
    with open_shop(directory, kind) as app:
        yield app, kind.sql.format(dir=directory)


def walk(app: App, sql: str, faults: list[Fault]) -> list[Fault]:
    """Makes a statement fail in every way, until one does not keep it from being done: that one is left, with the
    others after it."""
    for number, (point, visit, failure) in enumerate(faults):
        before = fingerprint(app)
        try:
            with failing(point, failure("it fails"), visit=visit):
                app.sql(sql)
        except (Error, Injected):
            assert not differing(before, fingerprint(app)), (point, visit, failure)
            others_go_on(app)
        else:
            return faults[number:]
    app.sql(sql)
    return []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_fails_leaves_nothing_behind(tmp_path: Path, kind: Kind) -> None:
    """At the steps of statements."""
    check_faults(tmp_path, kind, lambda point: ":" not in point)


@pytest.mark.chaos
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_fails_anywhere_leaves_nothing_behind(tmp_path: Path, kind: Kind) -> None:
    """Also within commits, loads and tables."""
    check_faults(tmp_path, kind, lambda point: True)


def check_faults(tmp_path: Path, kind: Kind, walked: Callable[[str], bool]) -> None:
    """After each failure the app is as before, and other statements run; in the end the statement itself does. Where no
    error comes out, the statement had happened when the fault came: then it is done as a whole."""
    with shop(tmp_path / "shop", kind) as (app, sql):
        with recorded() as counts:
            app.sql(sql)
        wait_for_views(app)
        done = fingerprint(app)
        if kind.again:
            app.sql(sql)
        app.drain()
    visits = [(p, visit + 1) for p, n in counts.items() if walked(p) for visit in range(min(n, MOST))]
    left = [(point, visit, failure) for point, visit in visits for failure in FAILURES]
    for _ in range(len(left) + 1):
        with shop(tmp_path / "shop", kind) as (app, sql):
            left = walk(app, sql, left)
            if not left:
                app.drain()
                return
        point, visit, failure = left.pop(0)
        with shop(tmp_path / "shop", kind) as (app, sql):
            with failing(point, failure("it fails"), visit=visit):
                app.sql(sql)
            wait_for_views(app)
            found = differing(done, fingerprint(app))
            assert not found.keys() - set(ELSEWHERE), (point, visit, failure, found)


def wait_for_views(app: App) -> None:
    """Waits until the views have followed; one that failed tries it again."""
    for _ in range(100):
        with suppress(Error):
            return app._runtime.views.drain(30)
        time.sleep(0.1)
    app._runtime.views.drain(30)


def others_go_on(app: App) -> None:
    """Reads, writes and running statements that have nothing to do with the one that failed."""
    assert app.sql("SELECT COUNT(*) AS n FROM stock").rows() == [{"n": 2}]
    app.sql("INSERT INTO other VALUES (0, 'x', 0)")
    app.drain()
