"""Fault injection: every point that the code names is listed, and is reached by what tests it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millpond import faults
from millpond.testing.faults import Injected, failing, recorded

CODE = Path(__file__).resolve().parent.parent / "millpond"


def test_points_in_the_code_and_in_the_list_are_the_same() -> None:
    found = {
        name
        for file in CODE.rglob("*.py")
        if file.parent.name != "testing"
        for name in re.findall(r'\breach\("([^"]+)"\)', file.read_text())
    }
    assert found == set(faults.POINTS)


def test_a_fault_comes_once_at_the_visit_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(faults.POINTS, "here", "it is here")
    with failing("here", visit=2):
        faults.reach("here")
        with pytest.raises(Injected):
            faults.reach("here")
        faults.reach("here")
    with recorded() as counts:
        faults.reach("here")
    faults.reach("here")
    assert counts == {"here": 1}
