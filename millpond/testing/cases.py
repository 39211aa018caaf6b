"""Parses ``.test`` files.

A file contains cases. A case has its own app. Its steps run in order; all effects of a step come before the next.
A line that starts with ``#`` is a comment.

    === name                        a case
    --- only spark: reason          DuckDB cannot run its queries; strict: the case fails once it can
    --- file name                   a file; ``{files}`` in SQL is the directory of a case's files
    --- app [file.sql]              the app's SQL, below or in a file next to it; `emits` checks its running SELECTs
    --- sql                         statements, run one after another
    --- query                       a statement whose result is checked
    --- send stream                 rows for a stream, or for the URI of a topic: a table, or JSON lines
    --- insert table                rows for a table, by the Python API
    --- clock 2024-03-01T10:00Z     sets the time; a case begins on the 1st of January 2024, UTC
    --- advance 5m                  moves the time, which does not move otherwise
    --- restart                     the app is cut off and started again on its state

The expected result follows a step:

    --- rows [in order]             the result of the query, a table; nothing below it means no rows
    --- count 3                     how many rows the statement changed
    --- error code [at line:column] the step fails; every line below is part of the message or the hint

And for the running SELECTs, the first unless a number is given:

    --- emits [2] [in order]        rows emitted since the last check; rows that no step checks are a failure

A table has a line of names, each with its type if that matters, and a line for each row:

    id INT | total DECIMAL(12,2) | name
    1      | 10.50               | Alice

A ``.parquet`` file is written as such a table with types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Literal, get_args

from millpond.errors import Place, SqlSyntaxError
from millpond.options import parse_duration
from millpond.sql.uris import TOPIC_CALL, TOPICS

StepKind = Literal["app", "sql", "query", "send", "insert", "emits", "clock", "advance", "restart"]

_STEPS = get_args(StepKind)
_READS_STREAM = re.compile(
    rf"\bCREATE\s+(OR\s+REPLACE\s+)?STREAM\b|\b({TOPICS}|{TOPIC_CALL}\b)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Grid:
    """Contains a table as text: names, the given types, and rows of cells."""

    names: tuple[str, ...]
    types: tuple[str | None, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Contains expected rows. Without a grid there are none, whatever the columns."""

    grid: Grid | None
    ordered: bool
    line: int


@dataclass(frozen=True, slots=True)
class Count:
    rows: int
    line: int


@dataclass(frozen=True, slots=True)
class Fails:
    """Contains an expected error; ``parts`` are in its message or hint, ``at`` is line and column."""

    code: str
    parts: tuple[str, ...]
    at: tuple[int, int] | None
    line: int


@dataclass(frozen=True, slots=True)
class Step:
    """Contains one step; ``argument`` is the stream or table, or the number of the SELECT."""

    kind: StepKind
    line: int
    argument: str = ""
    text: str = ""
    grid: Grid | None = None
    expected: Rows | Count | Fails | None = None


@dataclass(frozen=True, slots=True)
class FixtureFile:
    name: str
    text: str
    grid: Grid | None


@dataclass(frozen=True, slots=True)
class Case:
    """Contains a case, with its place in its file. ``only_spark`` is the reason why DuckDB cannot run it."""

    name: str
    path: Path
    line: int
    steps: tuple[Step, ...] = ()
    files: tuple[FixtureFile, ...] = ()
    only_spark: str | None = None

    @property
    def app(self) -> str:
        """Returns the app's SQL."""
        return next((s.text for s in self.steps if s.kind == "app"), "")

    @property
    def has_stream(self) -> bool:
        return any(_READS_STREAM.search(s.text) for s in self.steps)


@dataclass(slots=True)
class _Section:
    head: str
    line: int
    body: list[str] = field(default_factory=list)

    @property
    def word(self) -> str:
        return self.head.split()[0].rstrip(":") if self.head else ""

    @property
    def rest(self) -> str:
        return self.head.partition(" ")[2].strip()


def read_cases(path: Path) -> list[Case]:
    """Returns the cases of a file."""
    return parse_cases(path.read_text(encoding="utf-8"), path)


def parse_cases(text: str, path: Path) -> list[Case]:
    """Returns the cases of a text; raises SqlSyntaxError with the place in it."""
    return [_Parser(text, sections).case(path) for sections in _split(text)]


def _split(text: str) -> Iterator[list[_Section]]:
    """Yields the sections of each case; the first is its name."""
    case: list[_Section] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("==="):
            if case:
                yield case
            case = [_Section(line[3:].strip(), number)]
        elif line.startswith("---") and case:
            case.append(_Section(line[3:].strip(), number))
        elif case:
            case[-1].body.append(line)
        elif line.strip() and not line.startswith("#"):
            raise _wrong(text, number, "a file begins with a case: === name")
    if case:
        yield case


def _wrong(text: str, line: int, message: str, hint: str | None = None) -> SqlSyntaxError:
    start = sum(len(x) + 1 for x in text.splitlines()[: line - 1])
    length = len(text.splitlines()[line - 1])
    return SqlSyntaxError(message, hint=hint, place=Place.of(text, start, start + length))


class _Parser:
    def __init__(self, text: str, sections: list[_Section]):
        self.text = text
        self.sections = sections
        self.path = Path()

    def case(self, path: Path) -> Case:
        self.path = path
        head, *sections = self.sections
        if not head.head:
            raise _wrong(self.text, head.line, "a case has a name: === name")
        case = Case(head.head, path, head.line)
        steps: list[Step] = []
        files: list[FixtureFile] = []
        for section in sections:
            match section.word:
                case "only":
                    case = replace(case, only_spark=self._only(section))
                case "file":
                    files.append(self._file(section))
                case "rows" | "count" | "error":
                    self._expect(section, steps)
                case word if word in _STEPS:
                    steps.append(self._step(section))
                case word:
                    raise _wrong(self.text, section.line, f'"{word}" is not a section')
        return replace(case, steps=tuple(steps), files=tuple(files))

    def _only(self, section: _Section) -> str:
        way, _, reason = section.rest.partition(":")
        if way.strip() != "spark" or not reason.strip():
            raise _wrong(self.text, section.line, "write: --- only spark: reason")
        return reason.strip()

    def _file(self, section: _Section) -> FixtureFile:
        if section.rest.endswith(".parquet"):
            return FixtureFile(section.rest, "", self._grid(section))
        body = list(section.body)
        while body and not body[-1].strip():
            body.pop()
        return FixtureFile(section.rest, "".join(f"{line}\n" for line in body), None)

    def _step(self, section: _Section) -> Step:
        kind: StepKind = section.word  # type: ignore[assignment]
        lines = [x for x in section.body if not x.startswith("#")]
        text = "\n".join(lines).strip("\n")
        step = Step(kind, section.line, section.rest, text)
        if kind in ("send", "insert"):
            if not section.rest:
                raise _wrong(self.text, section.line, f'"{kind}" needs a name')
            if not text.lstrip().startswith("{"):
                step = replace(step, grid=self._grid(section), text="")
        elif kind == "app" and section.rest:
            step = replace(step, text=self._app_of(section))
        elif kind == "emits":
            number, ordered = self._order(section)
            step = replace(
                step,
                argument=number or "1",
                text="",
                expected=Rows(self._grid(section), ordered, section.line),
            )
        elif kind in ("clock", "advance"):
            self._time(section)
        if kind in ("clock", "advance", "restart") and text.strip():
            raise _wrong(self.text, section.line, f"nothing stands below {kind}")
        return step

    def _time(self, section: _Section) -> None:
        try:
            if section.word == "advance":
                parse_duration(section.rest)
            elif datetime.fromisoformat(section.rest).tzinfo is None:
                raise ValueError
        except ValueError:
            form = "--- advance 5m" if section.word == "advance" else "--- clock 2024-03-01T10:00:00Z"
            raise _wrong(self.text, section.line, f"write: {form}") from None

    def _app_of(self, section: _Section) -> str:
        """Returns the SQL of a file, whose path is relative to the file of the cases, followed by the text below."""
        path = self.path.parent / section.rest
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise _wrong(self.text, section.line, f'file "{path}" cannot be read: {error.strerror}') from None
        return "\n".join([text, *section.body])

    def _order(self, section: _Section) -> tuple[str, bool]:
        rest = section.rest
        ordered = rest.endswith("in order")
        return rest.removesuffix("in order").strip(), ordered

    def _expect(self, section: _Section, steps: list[Step]) -> None:
        if not steps or steps[-1].expected is not None or steps[-1].kind == "restart":
            raise _wrong(self.text, section.line, f'"{section.word}" must follow a step')
        expected: Rows | Count | Fails
        if section.word == "rows":
            _, ordered = self._order(section)
            expected = Rows(self._grid(section), ordered, section.line)
        elif section.word == "count":
            expected = Count(int(section.rest), section.line)
        else:
            found = re.fullmatch(r"(\w+)(?:\s+at\s+(\d+):(\d+))?", section.rest)
            if found is None:
                raise _wrong(self.text, section.line, "write: --- error code [at line:column]")
            at = (int(found[2]), int(found[3])) if found[2] else None
            parts = tuple(x.strip() for x in section.body if x.strip() and not x.startswith("#"))
            expected = Fails(found[1], parts, at, section.line)
        steps[-1] = replace(steps[-1], expected=expected)

    def _grid(self, section: _Section) -> Grid | None:
        lines = [
            (section.line + 1 + i, x)
            for i, x in enumerate(section.body)
            if x.strip() and not x.startswith("#")
        ]
        if not lines:
            return None
        heads = [_head(cell) for cell in split_cells(lines[0][1])]
        rows = []
        for number, line in lines[1:]:
            cells = tuple(split_cells(line))
            if len(cells) != len(heads) or "" in cells:
                raise _wrong(
                    self.text,
                    number,
                    f"{len(cells)} cells, {len(heads)} columns",
                    hint='an empty text is "", a null is NULL',
                )
            rows.append(cells)
        return Grid(tuple(h[0] for h in heads), tuple(h[1] for h in heads), tuple(rows))


def split_cells(line: str) -> list[str]:
    """Returns the cells of a line; a bar in double quotes is text."""
    cells = re.findall(r'((?:"(?:[^"\\]|\\.)*"|[^|"])*)(?:\||$)', line.strip())
    return [c.strip() for c in cells[: -1 if len(cells) > 1 else None]]


def _head(cell: str) -> tuple[str, str | None]:
    found = re.fullmatch(r"(?:`([^`]+)`|(\S+))(?:\s+(.+))?", cell)
    if found is None:
        return cell, None
    return found[1] or found[2], found[3]
