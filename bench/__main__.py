"""``python -m bench [name …]``: runs the benchmarks, prints a table and, with ``--write``, puts it into the docs, in
the place of what was measured before."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import bench
from bench import report
from bench.figure import Figure

_NO_BENCHMARKS = (
    "__main__",
    "chart",
    "databaseload",
    "figure",
    "httpclient",
    "log_stream",
    "process_tree",
    "report",
)


def main(arguments: list[str]) -> int:
    names = [a for a in arguments if not a.startswith("-")]
    known = [m.name for m in pkgutil.iter_modules(bench.__path__) if m.name not in _NO_BENCHMARKS]
    unknown = [*(set(names) - set(known)), *(a for a in arguments if a.startswith("-") and a != "--write")]
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}, --write", file=sys.stderr)
        return 2
    figures: list[Figure] = []
    for name in names or known:
        print(f"== {name}", flush=True)
        for figure in importlib.import_module(f"bench.{name}").run():
            print("  " + figure.line(), flush=True)
            figures.append(figure)
    print(f"\nMeasured with {report.machine()}.\n\n{report.table(report.lines(figures))}")
    if "--write" in arguments:
        report.write(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
