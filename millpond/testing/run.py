"""Runs a case, in several modes that must lead to the same result.

    plain     as it is
    duckdb    table queries run in process; one that DuckDB cannot run fails
    spark     table queries run in Spark
    restart   the app is cut off in the middle and started again on its state directory

A case without streams runs on both paths and with a restart. A case with streams runs plain: its
statements get their batches directly and process them in process. It also runs with a restart: a loop reads the
stream, and Spark evaluates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet

from millpond.app.app import App, runtime_of
from millpond.clock import ManualClock
from millpond.connectors.stand_in import stream_of
from millpond.errors import Error
from millpond.options import parse_duration
from millpond.query.result import Result
from millpond.records import to_arrow
from millpond.records.outgoing import to_values
from millpond.sql.parse import parse
from millpond.sql.statements import CreateTable
from millpond.testing.cases import Case, Count, Fails, FixtureFile, Grid, Rows, Step
from millpond.testing.crash import crash
from millpond.testing.topics import Topics, messages_of
from millpond.testing.values import matches, parse_cell, parse_json, show
from millpond.types import Column, Schema, normal, type_name

Mode = Literal["plain", "duckdb", "spark", "restart"]
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
"""The time at which a case begins, unless it says another."""
DRAIN = 120.0
"""Seconds until the effects of a step must be complete."""


class CaseFailed(AssertionError):
    """Is raised if a case fails; the message shows the place and the difference."""


def modes_of(case: Case) -> tuple[Mode, ...]:
    """Returns the modes in which a case runs."""
    if case.has_stream:
        return ("plain",) if _is_refused(case) else ("plain", "restart")
    if case.only_spark is not None:
        return ("duckdb", "spark")
    return ("plain",) if _is_refused(case) else ("duckdb", "spark", "restart")


def _is_refused(case: Case) -> bool:
    """Returns whether the app itself does not start: then nothing is evaluated."""
    return any(s.kind == "app" and isinstance(s.expected, Fails) for s in case.steps)


def run_case(case: Case, mode: Mode, directory: Path, *, cuts: int = 1) -> None:
    """Runs a case in a new directory; raises CaseFailed. Sent rows come in that many batches."""
    run = _Run(case, mode, directory, cuts)
    try:
        if mode == "duckdb" and case.only_spark is not None:
            run.must_need_spark()
        else:
            run.all()
    finally:
        run.end()


class _Run:
    def __init__(self, case: Case, mode: Mode, directory: Path, cuts: int = 1):
        self.case = case
        self.cuts = cuts
        self.mode = mode
        self.state = directory / "state"
        self.files = directory / "files"
        self.app: App | None = None
        self.at = case.line
        self.before: dict[str, _Texts] = {}
        """What was emitted before a restart, by the name of the query."""
        self.looked: dict[int, int] = {}
        self.names: list[str] = []
        self.clock = ManualClock(BEGIN)
        self.topics = Topics(case, self.state)
        for file in case.files:
            self._write(file)

    # the order of the steps

    def all(self) -> None:
        cut = self._cut()
        for number, step in enumerate(self.case.steps):
            self.at = step.line
            self._step(step, cut=self.mode == "restart" and number == cut)
        self._all_looked_at()

    def must_need_spark(self) -> None:
        try:
            self.all()
        except CaseFailed:
            raise
        except Exception as error:
            if type(error).__name__ == "Unrenderable":
                return
            raise
        raise self._failed("DuckDB answers this by now: take the line `--- only spark` out")

    def end(self) -> None:
        if self.app is not None:
            self.app.close()

    def _cut(self) -> int:
        """Returns the step after which the app is cut off: the middle one of those that send, else of all."""
        numbers = [i for i, s in enumerate(self.case.steps) if s.kind == "send" and s.expected is None]
        numbers = numbers or list(range(len(self.case.steps)))
        return numbers[len(numbers) // 2] if numbers else -1

    def _step(self, step: Step, *, cut: bool) -> None:
        expected = step.expected
        if isinstance(expected, Fails):
            self._fails(step, expected)
            return
        try:
            result = self._do(step)
            if cut and step.kind != "emits":
                self._restart()
            if step.kind != "query":
                self._settle()
        except Error as error:
            raise self._failed(f"{step.kind} failed: {error}") from error
        if isinstance(expected, Count) and (result is None or result.count != expected.rows):
            found = None if result is None else result.count
            raise self._failed(f"expected {expected.rows} rows touched, got {found}")
        if isinstance(expected, Rows) and step.kind == "emits":
            self._emits(int(step.argument) - 1, expected)
        elif isinstance(expected, Rows):
            assert result is not None
            self._compare(expected, _texts(result.to_arrow()))

    def _fails(self, step: Step, expected: Fails) -> None:
        try:
            self._do(step)
            self._settle()
        except Error as error:
            self._compare_error(error, expected)
            return
        raise self._failed(f'expected an error "{expected.code}", there was none')

    def _do(self, step: Step) -> Result | None:
        match step.kind:
            case "app":
                self._open()
            case "sql" | "query":
                return self._running().sql(self._sql(step.text))
            case "send":
                self._send(step)
            case "insert":
                self._running().table(step.argument).bulk_insert(self._records(step))
            case "clock" | "advance":
                self._move_clock(step)
            case "restart":
                self._restart()
        return None

    def _send(self, step: Step) -> None:
        """Sends the rows of a step, in as many batches as requested."""
        app, topic = self._running(), self.topics.find(step.argument)
        rows: Sequence[Any] = self._records(step) if topic is None else messages_of(step)
        size = max(1, -(-len(rows) // self.cuts))
        for first in range(0, len(rows), size):
            if first:
                self._settle()
            part = rows[first : first + size]
            if topic is None:
                app.send(step.argument, part)
            else:
                sent = self.topics.rows(topic, part, self.clock.now())
                runtime_of(app).store.commit(sent={stream_of(topic): sent})

    def _move_clock(self, step: Step) -> None:
        try:
            if step.kind == "advance":
                self.clock.advance(parse_duration(step.argument))
            else:
                self.clock.set(datetime.fromisoformat(step.argument))
        except ValueError as error:
            raise self._failed(str(error)) from None

    def _settle(self) -> None:
        if self.app is not None:
            self.app.drain(DRAIN)

    # the app

    def _running(self) -> App:
        if self.app is None:
            self._open()
        assert self.app is not None
        return self.app

    def _open(self) -> None:
        path = {"spark": "spark", "duckdb": "duckdb"}.get(self.mode, "auto")
        by_spark = self.mode == "restart" and self.case.has_stream
        if self.mode == "restart":
            path = "spark" if by_spark else "duckdb"
        self.app = App(
            self._sql(self.case.app),
            state=self.state,
            engine="spark" if by_spark else "auto",
            _path=path,  # type: ignore[arg-type]
            _direct=self.mode == "plain",
            _clock=self.clock,
            _stand_in=self.topics.open,
        )

    def _restart(self) -> None:
        app = self._running()
        crash(app)
        self.before = self._emitted()
        self.app = None
        self._open()

    def _sql(self, text: str) -> str:
        return text.replace("{files}", str(self.files))

    # rows in

    def _write(self, file: FixtureFile) -> None:
        path = self.files / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.grid is None:
            path.write_text(file.text, encoding="utf-8")
            return
        columns = ", ".join(f"`{n}` {t}" for n, t in zip(file.grid.names, file.grid.types, strict=True))
        statement = parse(f"CREATE TABLE t ({columns})").require()[0]
        assert isinstance(statement, CreateTable)
        schema = Schema(tuple(Column(c.name, c.type) for c in statement.columns))
        rows = to_arrow(schema, _grid_records(file.grid, schema), what=f'file "{file.name}"')
        pyarrow.parquet.write_table(rows, path)

    def _records(self, step: Step) -> list[dict[str, Any]]:
        relation = runtime_of(self._running()).catalog.find(step.argument)
        schema = relation.schema if relation is not None else Schema(())
        if step.grid is not None:
            return _grid_records(step.grid, schema)
        record = pa.struct([pa.field(c.name, c.type) for c in schema])
        return [parse_json(line, record) for line in step.text.splitlines() if line.strip()]

    # rows out

    def _emitted(self) -> dict[str, _Texts]:
        """Returns what queries have emitted, in the order of the SQL, also before a restart."""
        emitted = runtime_of(self._running()).emitted.results
        self.names += [name for name in emitted if name not in self.names]
        found = {}
        for name in self.names:
            before, now = self.before.get(name), emitted.get(name)
            if now is not None:
                texts = _texts(now.to_arrow())
                found[name] = texts._replace(rows=(before.rows if before else []) + texts.rows)
            elif before is not None:
                found[name] = before
        return found

    def _all_emitted(self, number: int) -> _Texts:
        results = list(self._emitted().values())
        if number >= len(results):
            raise self._failed(f"the app has {len(results)} running SELECTs")
        return results[number]

    def _emits(self, number: int, expected: Rows) -> None:
        found = self._all_emitted(number)
        seen = self.looked.get(number, 0)
        self.looked[number] = len(found.rows)
        self._compare(expected, found._replace(rows=found.rows[seen:]))

    def _all_looked_at(self) -> None:
        if self.app is None:
            return
        for number in range(len(self._emitted())):
            rest = self._all_emitted(number).rows[self.looked.get(number, 0) :]
            if rest:
                shown = "\n".join("  + " + " | ".join(r) for r in rest[:20])
                raise self._failed(
                    f"running SELECT {number + 1} emitted rows that nothing looks at:\n{shown}"
                )

    def _compare(self, expected: Rows, found: _Texts) -> None:
        self.at = expected.line
        names, types, rows = found
        grid = expected.grid
        if grid is None:
            grid = Grid(tuple(names), (None,) * len(names), ())
        if list(grid.names) != names:
            raise self._failed(f"expected the columns {', '.join(grid.names)}; got {', '.join(names)}")
        for name, wanted, given in zip(names, grid.types, types, strict=True):
            if wanted is not None and wanted.replace(" ", "") != given.replace(" ", ""):
                raise self._failed(f'column "{name}" is {given}, expected {wanted}')
        difference = _ordered if expected.ordered else _unordered
        lines = list(difference(grid.rows, rows))
        if any(mark != " " for mark, _ in lines):
            order = "in order" if expected.ordered else "in any order"
            table = _aligned([(" ", tuple(names)), *lines])
            raise self._failed(f"expected {len(grid.rows)} rows {order}, got {len(rows)}\n{table}")

    def _compare_error(self, error: Error, expected: Fails) -> None:
        self.at = expected.line
        shown = "\n".join("    " + line for line in str(error).splitlines())
        if error.code != expected.code:
            raise self._failed(
                f'expected the error "{expected.code}", got "{error.code}":\n{shown}'
            ) from error
        for part in expected.parts:
            if self._sql(part) not in str(error):
                raise self._failed(f"expected in the error: {part}\n{shown}") from error
        if expected.at is not None and expected.at != (error.line, error.column):
            raise self._failed(
                f"expected the error at {expected.at[0]}:{expected.at[1]}, "
                f"it is at {error.line}:{error.column}\n{shown}"
            ) from error

    def _failed(self, message: str) -> CaseFailed:
        return CaseFailed(f"{self.case.path}:{self.at}: {self.case.name} [{self.mode}]: {message}")


def _grid_records(grid: Grid, schema: Schema) -> list[dict[str, Any]]:
    columns = [schema.find(n) for n in grid.names]
    types = [c.type if c is not None else None for c in columns]
    return [
        {n: parse_cell(c, t) for n, c, t in zip(grid.names, row, types, strict=True)} for row in grid.rows
    ]


class _Texts(NamedTuple):
    """Contains a result as text."""

    names: list[str]
    types: list[str]
    rows: list[tuple[str, ...]]


def _texts(table: pa.Table) -> _Texts:
    columns = [
        [show(v, field.type) for v in to_values(column)]
        for field, column in zip(table.schema, table.columns, strict=True)
    ]
    types = [type_name(normal(field.type)) for field in table.schema]
    return _Texts(list(table.column_names), types, list(zip(*columns, strict=True)) if columns else [])


Line = tuple[str, tuple[str, ...]]


def _same(expected: tuple[str, ...], actual: tuple[str, ...]) -> bool:
    return all(matches(e, a) for e, a in zip(expected, actual, strict=True))


def _unordered(expected: tuple[tuple[str, ...], ...], actual: list[tuple[str, ...]]) -> Iterator[Line]:
    """Returns lines with `` ``, ``-`` for missing and ``+`` for unexpected rows."""
    left = list(actual)
    missing = []
    for row in expected:
        found = next((i for i, a in enumerate(left) if _same(row, a)), None)
        if found is None:
            missing.append(row)
        else:
            yield " ", left.pop(found)
    yield from (("-", row) for row in missing)
    yield from (("+", row) for row in left)


def _ordered(expected: tuple[tuple[str, ...], ...], actual: list[tuple[str, ...]]) -> Iterator[Line]:
    for number in range(max(len(expected), len(actual))):
        wanted = expected[number] if number < len(expected) else None
        found = actual[number] if number < len(actual) else None
        if wanted is not None and found is not None and _same(wanted, found):
            yield " ", found
            continue
        if wanted is not None:
            yield "-", wanted
        if found is not None:
            yield "+", found


def _aligned(lines: list[Line]) -> str:
    widths = [max(len(cells[i]) for _, cells in lines) for i in range(len(lines[0][1]))]
    return "\n".join(
        f"  {mark} {' | '.join(c.ljust(w) for c, w in zip(cells, widths, strict=True))}".rstrip()
        for mark, cells in lines
    )
