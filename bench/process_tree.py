"""Measures the CPU time of a process and of all that it has started: for the driver, the JVM and its Python workers."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(root: int | None = None) -> float:
    """Returns the CPU time so far of this process, or of another one, and of what it has started. Linux only."""
    root = root or os.getpid()
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        process = int(stat.parent.name)
        parents[process] = int(fields[1])
        ticks[process] = sum(int(f) for f in fields[11:15])  # with those of children that have ended

    def is_ours(process: int) -> bool:
        while process > 1:
            if process == root:
                return True
            process = parents.get(process, 0)
        return False

    return sum(t for p, t in ticks.items() if is_ours(p)) / os.sysconf("SC_CLK_TCK")
