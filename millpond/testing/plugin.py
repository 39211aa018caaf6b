"""Lets pytest collect ``.test`` files: each case is a test. It is on where the package is installed; ``-p no:millpond``
turns it off.

``--millpond-cuts N`` sends the rows of each step in up to N batches.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.testing.cases import Case, read_cases
from millpond.testing.run import CaseFailed, run_case

pytest.register_assert_rewrite("millpond.testing.contracts")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("millpond")
    group.addoption(
        "--millpond-cuts",
        type=int,
        default=1,
        metavar="N",
        help="send the rows of each step in up to N batches",
    )


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix != ".test":
        return None
    return CaseFile.from_parent(parent, path=file_path)


class CaseFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        for case in read_cases(self.path):
            yield CaseItem.from_parent(self, name=case.name, case=case)


class CaseItem(pytest.Item):
    def __init__(self, *, case: Case, **more: Any):
        super().__init__(**more)
        self.case = case

    def runtest(self) -> None:
        for cuts in range(1, self.config.getoption("--millpond-cuts") + 1):
            with tempfile.TemporaryDirectory(prefix="millpond-test-") as scratch:
                run_case(self.case, "plain", Path(scratch), cuts=cuts)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Returns only the difference; for other errors the traceback."""
        if isinstance(excinfo.value, CaseFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.line - 1, self.case.name
