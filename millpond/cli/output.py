"""Prints results on standard output: as tables for people, as JSON lines or CSV for programs."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from millpond.cli.pager import page
from millpond.cli.values import to_cell, to_csv, to_json

if TYPE_CHECKING:
    import pyarrow as pa

HEADER_EVERY = 50
"""Rows of a running query after which its header is shown again."""


class Format(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"


class Printer:
    """Prints results, each complete and flushed before it returns. Threads may share it."""

    def __init__(self, format: Format, out: TextIO | None = None, *, paged: bool = False):
        """Creates a printer. With ``paged`` long results are shown a screen at a time."""
        self.format = format
        self._paged = paged
        self.broken = False
        self._out = out or sys.stdout
        self._lock = threading.Lock()
        self._current: str | None = None
        self._widths: list[int] = []
        self._since_header = 0

    def answer(self, table: pa.Table) -> None:
        """Prints the rows of a query that has an end."""
        with self._lock:
            self._current = None
            if self.format is Format.table and _is_plan(table):
                self._write(table["plan"].to_pylist())
            elif self.format is Format.table:
                lines = [*self._block(table), _count(table.num_rows), ""]
                if not (self._paged and page(lines)):
                    self._write(lines)
            else:
                self._write(self._lines(table, header=True))

    def live(self, query: str, table: pa.Table) -> None:
        """Prints some rows of a running query; its header comes first if another one has printed in between."""
        with self._lock:
            fresh = query != self._current
            self._current = query
            if self.format is not Format.table:
                self._write(self._lines(table, header=fresh))
                return
            if fresh:
                self._widths = []
            again = fresh or self._since_header >= HEADER_EVERY
            self._since_header = table.num_rows if again else self._since_header + table.num_rows
            self._write(list(self._block(table, header=again, keep=True)))

    def count(self, rows: int) -> None:
        """Prints how many rows a statement changed."""
        with self._lock:
            self._current = None
            match self.format:
                case Format.table:
                    self._write([f"ok, {_number(rows)}" if rows else "ok"])
                case Format.json:
                    self._write([to_json({"count": rows})])
                case Format.csv:
                    self._write(["count", str(rows)])

    def _write(self, lines: Sequence[str]) -> None:
        if not lines:
            return
        try:
            self._out.write("\n".join(lines) + "\n")
            self._out.flush()
        except BrokenPipeError:
            self.broken = True
            raise

    def _lines(self, table: pa.Table, *, header: bool) -> list[str]:
        from millpond.records.outgoing import to_rows, to_values

        if self.format is Format.json:
            return [to_json(row) for row in to_rows(table)]
        lines = [",".join(to_csv(name) for name in table.column_names)] if header else []
        columns = [[to_csv(v) for v in to_values(column)] for column in table.columns]
        return lines + [",".join(row) for row in zip(*columns, strict=True)]

    def _block(self, table: pa.Table, *, header: bool = True, keep: bool = False) -> Iterator[str]:
        """Yields the lines of a table; records below one another if the terminal is too narrow for it."""
        from millpond.records.outgoing import to_values

        names = [to_cell(n) for n in table.column_names]
        cells = [[to_cell(v) for v in to_values(column)] for column in table.columns]
        widths = [
            max([_width(name), *map(_width, column)]) for name, column in zip(names, cells, strict=True)
        ]
        if keep:
            widths = [max(pair) for pair in zip(widths, self._widths or [0] * len(widths), strict=True)]
            self._widths = widths
        right = [_is_number(field.type) for field in table.schema]
        if not names:
            return
        if self._too_narrow(sum(widths) + 3 * len(widths) - 1):
            yield from _records(names, cells)
            return
        if header:
            yield _line(names, widths, right)
            yield "─┼─".join("─" * w for w in widths)
        for row in zip(*cells, strict=True):
            yield _line(row, widths, right)

    def _too_narrow(self, width: int) -> bool:
        return self._out.isatty() and width > shutil.get_terminal_size().columns


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, to_right in zip(cells, widths, right, strict=True):
        pad = " " * (width - _width(cell))
        padded.append(pad + cell if to_right else cell + pad)
    return " │ ".join(padded).rstrip()


def _records(names: Sequence[str], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    width = max(_width(n) for n in names)
    for row in zip(*cells, strict=True):
        yield "─" * (width + 3)
        for name, cell in zip(names, row, strict=True):
            yield f"{name}{' ' * (width - _width(name))} │ {cell}"


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _is_number(dtype: pa.DataType) -> bool:
    import pyarrow as pa

    t = pa.types
    return bool(t.is_integer(dtype) or t.is_floating(dtype) or t.is_decimal(dtype))


def _is_plan(table: pa.Table) -> bool:
    """Returns whether it is the result of EXPLAIN: text that a person copies, and not a table."""
    from millpond.query.result import EXPLAINED

    return EXPLAINED.encode() in (table.schema.metadata or {})


def _number(rows: int) -> str:
    return f"{rows:,} row" + ("" if rows == 1 else "s")


def _count(rows: int) -> str:
    return f"({_number(rows)})"
