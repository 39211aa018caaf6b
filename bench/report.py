"""The page of figures: those that were measured take the place of their older ones, the others stay."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path

from bench.chart import draw, draw_growth
from bench.figure import Figure

DOCS = Path(__file__).parent.parent / "docs"
_BLOCK = re.compile(r"(?<=<!-- figures -->\n).*?(?=<!-- /figures -->)", re.DOTALL)
_HEAD = ["| figure | what | Millpond | peer | ratio | measured |", "|---|---|---|---|---|---|"]


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def lines(figures: Iterable[Figure]) -> list[str]:
    return [f"{f.row()} {datetime.date.today()} |" for f in figures]


def table(rows: Iterable[str]) -> str:
    return "\n".join([*_HEAD, *rows])


def write(figures: Iterable[Figure]) -> None:
    """Puts the figures into docs/benchmarks.md and draws its chart anew."""
    path = DOCS / "benchmarks.md"
    page = path.read_text(encoding="utf-8")
    block = _BLOCK.search(page)
    assert block is not None, "docs/benchmarks.md has lost the marks around its figures"
    kept = {_key(row): row for row in block[0].splitlines() if re.match(r"\| [A-Z]\d", row)}
    kept.update({_key(row): row for row in lines(figures)})
    rows = sorted(kept.values(), key=_place)
    text = f"Last measured with {machine()}.\n\n{table(rows)}\n"
    path.write_text(_BLOCK.sub(lambda _: text, page), encoding="utf-8")
    (DOCS / "benchmarks.svg").write_text(draw(rows), encoding="utf-8")
    (DOCS / "growth.svg").write_text(draw_growth(rows), encoding="utf-8")


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def _key(row: str) -> tuple[str, ...]:
    """What a row is about: the figure, what was done, and by which peer."""
    cells = _cells(row)
    return cells[0], cells[1], cells[3].rsplit(":", 1)[0]


def _place(row: str) -> tuple[object, ...]:
    """Figures by their number, then by what was done, small tables first; equal ones stay in their order."""
    figure, what = _cells(row)[:2]
    words = re.sub(r"[\d,]+ (?:rows|threads|records|dicts)", "", what)
    numbers = [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", what)]
    return figure[0], int(figure[1:]), words, numbers
