from __future__ import annotations

import sys

import pytest

from millpond.cli import progress
from millpond.cli.progress import Loading
from millpond.loading.progress import Progress


def load(loading: Loading) -> None:
    for rows in (100, 200):
        loading.report(Progress("t", rows, rows * 10, 4000))
    loading.report(Progress("t", 400, 4000, 4000, finished=True))


def test_files_and_bytes_are_told(capsys, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    Loading().report(Progress("t", 100, 3 << 20, 12 << 20, files=1, of_files=4))
    assert capsys.readouterr().err == "loading t: 100 rows, 1 of 4 files, 3 of 12 MB, 25 %\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_load_ends_with_one_line(capsys, monkeypatch, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    load(Loading())
    assert "loaded t: 400 rows" in capsys.readouterr().err


def test_a_long_load_is_told_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    load(Loading())
    assert capsys.readouterr().err.splitlines() == [
        "loading t: 100 rows, 25 %",
        "loading t: 200 rows, 50 %",
        "loaded t: 400 rows",
    ]
