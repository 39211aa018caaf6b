"""``python -m bench [name …]``: runs the benchmarks, prints a table and, with ``--write``, puts it into the docs."""

from __future__ import annotations

import datetime
import importlib
import os
import pkgutil
import platform
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import bench
from bench.figure import Figure

_DOCS = Path(__file__).parent.parent / "docs" / "benchmarks.md"
_MARKS = ("<!-- figures -->", "<!-- /figures -->")


def main(arguments: list[str]) -> int:
    names = [a for a in arguments if not a.startswith("-")]
    known = [m.name for m in pkgutil.iter_modules(bench.__path__) if hasattr_run(m.name)]
    unknown = set(names) - set(known)
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    figures: list[Figure] = []
    for name in names or known:
        print(f"== {name}", flush=True)
        for figure in importlib.import_module(f"bench.{name}").run():
            print("  " + figure.line(), flush=True)
            figures.append(figure)
    text = report(figures)
    print("\n" + text)
    if "--write" in arguments:
        page = _DOCS.read_text(encoding="utf-8")
        pattern = re.compile(re.escape(_MARKS[0]) + ".*?" + re.escape(_MARKS[1]), re.DOTALL)
        _DOCS.write_text(pattern.sub(f"{_MARKS[0]}\n{text}\n{_MARKS[1]}", page), encoding="utf-8")
    return 0


def hasattr_run(name: str) -> bool:
    return name not in ("__main__", "figure")


def report(figures: Iterable[Figure]) -> str:
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    lines = [
        f"Measured on {datetime.date.today()} with {machine}. The machine is shared: read the ratios.",
        "",
        "| figure | what | Millpond | peer | ratio |",
        "|---|---|---|---|---|",
    ]
    lines += [f.row() for f in figures]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
