"""A type checker passes on the examples: those of examples/, and those in Python of the documentation."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from mypy import api

from millpond.testing import Case, read_cases, run_case
from tests.test_docs import PAGES, ROOT, blocks

EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
LOOSE = "# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, allow-redefinition\n"
"""What a short example leaves out: the types of its own functions."""


def passes(files: list[Path]) -> None:
    """With the settings of the project, and so with what `make static` has found out."""
    config, cache = ROOT / "pyproject.toml", ROOT / ".mypy_cache"
    said, wrong, _ = api.run(
        ["--config-file", str(config), "--cache-dir", str(cache), "--no-error-summary", *map(str, files)]
    )
    assert not said + wrong, said + wrong


def _written(page: Path, folder: Path) -> list[Path]:
    """The Python of a page as modules, on the lines of the page: those that it names, and one of all others."""
    found = [b for b in blocks(page) if b.language == "python" and (not b.word or b.word.endswith(".py"))]
    whole = f"{page.relative_to(ROOT).with_suffix('')}".replace("/", "_").replace(".", "_") + ".py"
    modules: dict[str, list[str]] = {}
    for block in found:
        empty = [""] * len(page.read_text(encoding="utf-8").splitlines())
        lines = modules.setdefault(block.word or whole, empty)
        lines[block.line : block.line + block.text.count("\n")] = block.text.splitlines()
    for name, lines in modules.items():
        (folder / name).write_text(LOOSE + "\n".join(lines[1:]), encoding="utf-8")
    return [folder / name for name in modules]


@pytest.mark.slow
def test_examples_have_types(tmp_path: Path) -> None:
    written = [made for page in PAGES for made in _written(page, tmp_path)]
    assert len(written) > 5 and EXAMPLES
    passes([*EXAMPLES, *written])


@pytest.mark.slow
def test_a_wrong_call_is_found(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from millpond import App\nApp().sql(1)\nApp().tables() + 1\n")
    with pytest.raises(
        AssertionError, match=r"wrong\.py:2: .*\[arg-type\](.|\n)*wrong\.py:3: .*\[operator\]"
    ):
        passes([wrong])


@pytest.mark.parametrize(
    "case",
    [c for p in sorted((ROOT / "examples").rglob("*.test")) for c in read_cases(p)],
    ids=lambda c: c.name,
)
def test_cases_of_examples(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    run_case(case, "plain", tmp_path)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples_run(example: Path, spark: object) -> None:
    made = runpy.run_path(str(example))
    assert made["main"]()
