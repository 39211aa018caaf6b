"""The list of differences explains what it is meant to, and nothing else."""

from __future__ import annotations

from tests.oracle.differences import differences, explain


def test_every_entry_has_a_name_and_a_reason() -> None:
    names = [entry.name for entry in differences()]
    assert len(set(names)) == len(names)
    assert all(entry.reason.endswith(".") for entry in differences())


def test_what_is_not_in_the_list_is_a_defect() -> None:
    assert explain("quiet", "1 / 0 = 1 AND FALSE") is not None
    assert explain("raised", "1 / 0 = 1 AND FALSE") is None
    assert explain("quiet", "1 / 0") is None
