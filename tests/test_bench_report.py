"""The page of figures keeps what was not measured, and its chart shows what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import report
from bench.figure import Figure

PAGE = """# Benchmarks

<!-- figures -->
<!-- /figures -->

the end
"""


def test_only_what_was_measured_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "DOCS", tmp_path)
    page = tmp_path / "benchmarks.md"
    page.write_text(PAGE, encoding="utf-8")
    report.write(
        [
            Figure("F10", "memory", 3, 1, "Python rows", "rows", per="MB"),
            Figure("F1", "get_record, 10,000 rows", 2e6, 1e6, "a dict", "records"),
            Figure("F1", "get_record, 1,000 rows", 5e6, 6e6, "a dict", "records"),
            Figure("F1", "get_record, 1,000 rows", 5e6, 2e5, "SQLite", "records"),
        ]
    )
    report.write([Figure("F1", "get_record, 1,000 rows", 4e6, 8e6, "a dict", "records")])
    text = page.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| F")]
    assert [r.split("|")[1:6] for r in rows] == [
        [
            " F1 ",
            " get_record, 1,000 rows ",
            " 4,000,000 records/s ",
            " a dict: 8,000,000 records/s ",
            " 0.50 ",
        ],
        [
            " F1 ",
            " get_record, 1,000 rows ",
            " 5,000,000 records/s ",
            " SQLite: 200,000 records/s ",
            " 25.00 ",
        ],
        [
            " F1 ",
            " get_record, 10,000 rows ",
            " 2,000,000 records/s ",
            " a dict: 1,000,000 records/s ",
            " 2.00 ",
        ],
        [" F10 ", " memory ", " 3 rows/MB ", " Python rows: 1 rows/MB ", " 3.00 "],
    ]
    assert text.endswith("\nthe end\n") and text.count("<!--") == 2
    chart = (tmp_path / "benchmarks.svg").read_text(encoding="utf-8")
    assert all(shown in chart for shown in ("1,000 rows", "SQLite: 200,000", "a dict: 8,000,000"))


def test_what_a_change_took_does_not_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(PAGE, encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(report, "DOCS", tmp_path)
        for seconds in (0.25, 0.5):
            detail = f"{seconds * 1e3:.0f} ms"
            report.write([Figure("V2", "total", 1 / seconds, 8, "of 1 row", "changes", detail=detail)])
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| V")]
    assert [r.split("|")[2:6] for r in rows] == [
        [" total ", " 2 changes/s, 500 ms ", " of 1 row: 8 changes/s ", " 0.25 "]
    ]
    written = (report.DOCS / "benchmarks.md").read_text(encoding="utf-8").splitlines()
    names = [row.split("|")[2] for row in written if re.match(r"\| [A-Z]\d", row)]
    assert names and not [name for name in names if re.search(r"\d [mµ]?s\b", name.replace("of 1 s,", ""))]
