"""A statement that fails leaves nothing behind: every kind of statement, made to fail at every step on its way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millpond import App, Error
from millpond.errors import QueryFailed
from millpond.sql import statements as st
from millpond.testing.faults import Injected, failing, recorded
from tests.fingerprint import fingerprint
from tests.statement_kinds import KINDS, REFUSED, Kind, classes_of, make_files, open_shop

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
    """An app in which the statement can run, and its text."""
    directory.mkdir()
    make_files(directory)
    with open_shop(directory, kind) as app:
        yield app, kind.sql.format(dir=directory)


def walk(app: App, sql: str, faults: list[Fault]) -> list[Fault]:
    """Makes a statement fail in every way; answers those that did not keep it from being done, of which the first ends
    the walk."""
    for point, visit, failure in faults:
        before = fingerprint(app)
        try:
            with failing(point, failure("it fails"), visit=visit):
                app.sql(sql)
        except (Error, Injected):
            assert not differing(before, fingerprint(app)), (point, visit, failure)
            others_go_on(app)
        else:
            return faults[faults.index((point, visit, failure)) :]
    app.sql(sql)
    return []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_fails_leaves_nothing_behind(tmp_path: Path, kind: Kind) -> None:
    """After each failure the app is as before, and other statements run; in the end the statement itself does. Where no
    error comes out, the statement had happened when the fault came: then it is done as a whole."""
    with shop(tmp_path / "undisturbed", kind) as (app, sql):
        with recorded() as counts:
            app.sql(sql)
        done = fingerprint(app)
        if kind.again:
            app.sql(sql)
        app.drain()
    left = [(p, visit + 1, f) for p, n in counts.items() for visit in range(min(n, MOST)) for f in FAILURES]
    with shop(tmp_path / "walked", kind) as (app, sql):
        left = walk(app, sql, left)
        app.drain()
    for number, (point, visit, failure) in enumerate(left):
        with shop(tmp_path / f"happened{number}", kind) as (app, sql):
            with failing(point, failure("it fails"), visit=visit):
                app.sql(sql)
            assert not differing(done, fingerprint(app)), (point, visit, failure)


def others_go_on(app: App) -> None:
    """Reads, writes and running statements that have nothing to do with the one that failed."""
    assert app.sql("SELECT COUNT(*) AS n FROM stock").rows() == [{"n": 2}]
    app.sql("INSERT INTO other VALUES (0, 'x', 0)")
    app.drain()
