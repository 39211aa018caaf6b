"""The list of differences explains what it is meant to, and nothing else."""

from __future__ import annotations

from tests.oracle.differences import differences, explain


def test_every_entry_has_a_name_and_a_reason() -> None:
    names = [entry.name for entry in differences()]
    assert len(set(names)) == len(names)
    assert all(entry.reason.endswith(".") for entry in differences())


def test_what_is_not_in_the_list_is_a_defect() -> None:
    said = "[DIVIDE_BY_ZERO] Division by zero."
    assert explain("quiet", "1 / 0 = 1 AND FALSE", spark=said) is not None
    assert explain("quiet", "1 / 0 = 1 AND FALSE", spark="[UNRESOLVED_COLUMN] a") is None
    assert explain("raised", "1 / 0 = 1 AND FALSE", spark=said) is None
    assert explain("quiet", "1 / 0", spark=said) is None


def test_a_part_must_fail_by_itself() -> None:
    said = "[DIVIDE_BY_ZERO] Division by zero."
    assert explain("quiet", "1 / 0 = 1 AND FALSE", spark=said, part=lambda: True) is not None
    assert explain("quiet", "1 / 0 = 1 AND FALSE", spark=said, part=lambda: False) is None


def test_digits_may_differ_where_the_list_says_so() -> None:
    assert explain("value", "stddev(x)", spark="[1.5, 2]", ours="[1.50000000000001, 2]") is not None
    assert explain("value", "stddev(x)", spark="[1.5, 2]", ours="[1.5001, 2]") is None
    assert explain("value", "stddev(x)", spark="[1.5, 2]", ours="[1.5, 2, 2]") is None
    assert explain("value", "sum(x)", spark="1.5", ours="1.50000000000001") is None


def test_a_name_that_only_order_by_has_is_a_mistake() -> None:
    said = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `t`.`{}` cannot be resolved."
    grouped = "SELECT a, sum(b) FROM t GROUP BY a HAVING sum(b) > 1 ORDER BY t.{}"
    assert explain("answered", grouped.format("b"), spark=said.format("b")) is not None
    assert explain("answered", grouped.format("nope"), spark=said.format("nope")) is None
