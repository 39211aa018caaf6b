"""Every case of ``tests/sql/*.test``, in each of its ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.testing import Case, Mode, modes_of, read_cases, run_case

FILES = sorted((Path(__file__).parent / "sql").glob("*.test"))


def _needs_spark(case: Case, mode: Mode) -> bool:
    return mode == "spark" or (case.has_stream and mode == "restart")


def _all() -> Iterator[object]:
    for path in FILES:
        for case in read_cases(path):
            for mode in modes_of(case):
                marks = [pytest.mark.spark] if _needs_spark(case, mode) else []
                marks += [pytest.mark.slow] if mode == "restart" else []
                yield pytest.param(case, mode, id=f"{path.stem}-{case.name}-{mode}", marks=marks)


@pytest.mark.parametrize(("case", "mode"), list(_all()))
def test_case(case: Case, mode: Mode, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if _needs_spark(case, mode):
        request.getfixturevalue("spark")
    run_case(case, mode, tmp_path)
