"""Writes rows to the standard output, or standard error, of the process: for people and for pipes."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TextIO

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Position
from millpond.connectors.sink import Sink
from millpond.errors import ConnectionLost, InvalidOption
from millpond.formats.jsontext import to_cells, to_json
from millpond.options import Option
from millpond.types import Schema

_WIDEST = 40
"""Characters of a cell of a table; longer ones are cut."""
_CONTROL = r"[\x{0}-\x{1f}\x{7f}-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]"
"""Characters that would do something to a terminal, or to the order of what it shows, for RE2."""
_IN_NAMES = "[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_turn = threading.Lock()
"""Rows of several statements are not mixed inside a line."""


class ConsoleSink(Sink):
    """Writes rows as lines."""

    kind: ClassVar[str] = "console"
    schemes: ClassVar[tuple[str, ...]] = ("console",)
    keyed: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "format",
            "choice",
            "jsonl: one JSON object per line. table: columns with a head, for each batch",
            "jsonl",
            ("jsonl", "table"),
        ),
    )

    @classmethod
    def check_statement(cls, uri: str, values: Mapping[str, Any], schema: Schema, *, running: bool) -> None:
        if _target(uri) not in ("", "stdout", "stderr"):
            raise InvalidOption(
                f'"{uri}" is no output', hint="console://, console://stdout or console://stderr"
            )

    @property
    def guarantee(self) -> str:
        return "at least once: a batch that a crash cuts off is written again"

    @property
    def writer(self) -> str:
        return "this process, to its own output"

    def write(self, rows: pa.Table, position: Position | None) -> None:
        if not rows.num_rows:
            return
        as_table = self.values["format"] == "table"
        lines = _table(rows) if as_table else (line.decode() for line in to_json(rows).to_pylist())
        text = "".join(f"{line}\n" for line in lines)
        out: TextIO = sys.stderr if _target(self.uri) == "stderr" else sys.stdout
        with _turn:
            try:
                _write(out, text)
            except (OSError, ValueError) as error:  # the reader of a pipe is gone
                raise ConnectionLost(f'"{self.uri}" cannot be written: {error}') from None


def _write(out: TextIO, text: str) -> None:
    """Writes UTF-8, whatever the encoding of the output is: that one may not have the characters."""
    out.flush()
    raw = getattr(out, "buffer", None)
    if raw is None:
        out.write(text)
        out.flush()
    else:
        raw.write(text.encode())
        raw.flush()


def _target(uri: str) -> str:
    return uri.partition("://")[2].strip("/").lower()


def _table(rows: pa.Table) -> Iterator[str]:
    """Yields the lines of a table with a head."""
    columns = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        texts = pc.fill_null(to_cells(column).cast(pa.string()), "NULL")
        shown = pc.if_else(
            pc.greater(pc.utf8_length(texts), _WIDEST),
            pc.binary_join_element_wise(pc.utf8_slice_codeunits(texts, 0, _WIDEST - 1), "…", ""),
            texts,
        )
        flat = pc.replace_substring_regex(pc.replace_substring_regex(shown, r"\s", " "), _CONTROL, "\ufffd")
        name = re.sub(_IN_NAMES, "\ufffd", name)
        width = max(len(name), pc.max(pc.utf8_length(flat)).as_py())
        columns.append([name.ljust(width), "─" * width, *pc.utf8_rpad(flat, width).to_pylist()])
    for number, cells in enumerate(zip(*columns, strict=True)):
        yield ("─┼─" if number == 1 else " │ ").join(cells).rstrip()
