"""Every case of ``tests/sql/*.test``, in each of its ways."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.testing import Case, Mode, modes_of, read_cases, run_case

FILES = sorted((Path(__file__).parent / "sql").glob("*.test"))


WHOLE = {
    "a value out of range: with 'on.error' = 'fail' the query ends, and nothing of its batch is kept",
    "a block over a stream is one pipeline: each statement sees the changes of the ones before it",
    "live aggregates in a block change together with the rest",
    "outer joins give out what meets none when the watermark has passed it",
    "B15 B20 RIGHT and FULL: each batch also gives the rows of the table that none of its rows has met",
}
"""Cases of what happens within one batch, or of rows that are late after one: their rows must not be divided."""


def _needs_spark(case: Case, mode: Mode) -> bool:
    return mode == "spark" or (case.has_stream and mode == "restart")


def _in_every_run(case: Case, mode: Mode) -> bool:
    """Returns whether the case is in ``make test``. Of those that need Spark these are a tenth; cases with a restart
    come in several batches there, below, if their rows may be divided. ``make test-spark`` has all.
    """
    if not _needs_spark(case, mode):
        return True
    return case.name in WHOLE if mode == "restart" else zlib.crc32(case.name.encode()) % 10 == 0


def _all() -> Iterator[object]:
    for path in FILES:
        for case in read_cases(path):
            for mode in modes_of(case):
                marks = [pytest.mark.spark] if _needs_spark(case, mode) else []
                marks += [pytest.mark.slow] if mode == "restart" else []
                marks += [] if _in_every_run(case, mode) else [pytest.mark.chaos]
                yield pytest.param(case, mode, id=f"{path.stem}-{case.name}-{mode}", marks=marks)


@pytest.mark.parametrize(("case", "mode"), list(_all()))
def test_case(case: Case, mode: Mode, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if _needs_spark(case, mode):
        request.getfixturevalue("spark")
    run_case(case, mode, tmp_path)


_DIVIDED = [
    pytest.param(case, id=f"{path.stem}-{case.name}")
    for path in FILES
    for case in read_cases(path)
    if "restart" in modes_of(case) and case.has_stream and case.name not in WHOLE
]


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("case", _DIVIDED)
def test_case_in_several_batches_on_spark(case: Case, tmp_path: Path) -> None:
    """The rows of each step come in up to three batches, each evaluated by Spark, with a crash in the middle."""
    run_case(case, "restart", tmp_path, cuts=3)
