"""Splits rows of a binary log into cells: one function for each layout of a table, which runs for each row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

from millpond.connectors.mysql.table_map import Field

Cut = Callable[[bytes, int, int, list[Any], list[Any]], None]
"""Splits the rows between two places of an event, and appends their cells to the lists of columns: those of the row
before and after; an event of inserted or deleted rows has only the second.
"""


@cache
def cutter(sizes: tuple[int, ...], was: tuple[int, ...] | None, now: tuple[int, ...]) -> Cut:
    """Returns the function for columns of these sizes (``Field.size``), of which some are needed. With ``was`` the rows
    of an event come in pairs.
    """
    lines = ["def cut(b, p, end, was, now):"]
    if was is not None:
        lines += [f"    w{i} = was[{n}].append" for n, i in enumerate(was)]
    lines += [f"    n{i} = now[{n}].append" for n, i in enumerate(now)]
    lines.append("    while p < end:")
    if was is not None:
        lines += _image(sizes, was, "w")
    lines += _image(sizes, now, "n")
    made: dict[str, Any] = {}
    exec("\n".join(lines), {"number": int.from_bytes}, made)
    cut: Cut = made["cut"]
    return cut


def _image(sizes: Sequence[int], wanted: Collection[int], name: str) -> list[str]:
    """Returns the lines for one row. Most have no NULL, and need no test for each column."""
    nulls = (len(sizes) + 7) // 8
    lines = [f"        nulls = number(b[p:p+{nulls}], 'little')"]
    lines += ["        if not nulls:", *_row(sizes, wanted, name, nulls), "        else:"]
    lines.append(f"            p += {nulls}")
    for i, size in enumerate(sizes):
        append = f"{name}{i}" if i in wanted else None
        lines.append(f"            if nulls & {1 << i}:")
        lines.append(f"                {append}(None)" if append else "                pass")
        lines.append("            else:")
        lines += ["    " + line for line in _row([size], [0] if append else [], append or "", 0, whole=True)]
    return lines


def _row(
    sizes: Sequence[int], wanted: Collection[int], name: str, skipped: int, *, whole: bool = False
) -> list[str]:
    """Returns the lines for columns that have a value each; ``skipped`` bytes precede them. ``name`` is that of what
    appends a cell, with the number of the column unless it is ``whole``.
    """
    lines, at = [], skipped
    for i, size in enumerate(sizes):
        append = (name if whole else f"{name}{i}") if i in wanted else None
        if size >= 0:
            if append:
                lines.append(f"            {append}(b[p+{at}:p+{at + size}])")
            at += size
            continue
        begin = at - size
        length = f"b[p+{at}]" if size == -1 else f"number(b[p+{at}:p+{begin}], 'little')"
        lines.append(f"            q = p + {begin} + {length}")
        if append:
            lines.append(f"            {append}(b[p+{begin}:q])")
        lines.append("            p = q")
        at = 0
    return [*lines, f"            p += {at}"]


def sizes_of(fields: Sequence[Field]) -> tuple[int, ...]:
    return tuple(f.size for f in fields)
