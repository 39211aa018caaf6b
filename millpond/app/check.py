"""Checks a SQL text as a whole, without Spark and without a state directory; nothing runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.connectors import abilities
from millpond.connectors.source import Source
from millpond.engine_rule import Engine
from millpond.errors import (
    Caution,
    Error,
    FileMissing,
    InvalidOption,
    NotSupported,
    SqlSyntaxError,
    TopicMissing,
    UnknownName,
)
from millpond.plan.connectors import Connectors
from millpond.plan.explain import explain_plan
from millpond.plan.growth import growth_notes, growth_warnings
from millpond.plan.statement_plan import Planned
from millpond.query.column_defaults import DefaultChecks
from millpond.query.evaluate import Evaluator
from millpond.sql import statements as st
from millpond.sql.blocks import Blocks
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.check import Checker
from millpond.sql.checked import Checked, CheckedExplain
from millpond.sql.parse import Parsed, parse
from millpond.sql.reads import names_read
from millpond.sql.text import Script, pieces
from millpond.types import Schema

_WAITS = ("file.wait.timeout", "topic.wait.timeout", "retry.timeout")
_CREATE = re.compile(
    r"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:MATERIALIZED\s+)?(STREAM|TABLE|VIEW)\s+(?:IF\s+NOT\s+EXISTS\s+)?"
    r"(?:`((?:[^`]|``)+)`|(\w+))",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class CheckedText:
    """Contains the statements without mistakes, all mistakes in text order, and warnings and notes on statements that
    can run. ``script`` masks secrets.
    """

    statements: tuple[Checked, ...]
    errors: tuple[Error, ...]
    warnings: tuple[Caution, ...]
    notes: tuple[Caution, ...]
    script: Script


def check_text(text: str, env: Mapping[str, str] | None = None, engine: Engine = "auto") -> CheckedText:
    """Checks every statement, also those after mistakes; one mistake is one error.

    What a broken CREATE would have declared is assumed to exist, with unknown columns. ``engine`` is the app's.
    """
    parsed = parse(text, env)
    catalog = Catalog()
    connectors = _Outside()
    checker = Checker(catalog, connectors, locate=parsed.script.place, engine=engine)
    _declare_lost(parsed, catalog)
    found: list[Checked] = []
    errors: list[Error] = list(parsed.errors)
    warnings: list[Caution] = []
    blocks, defaults = Blocks(), DefaultChecks()
    for statement in parsed.statements:
        before = len(checker.errors)
        checked = checker.check(statement)
        errors += blocks.check(statement, checked)
        warnings += [_caution(statement, e, parsed.script) for e in connectors.take_open_questions()]
        if checked is not None:
            found.append(checked)
            errors += defaults.check(checked)
            continue
        fresh = checker.errors[before:]
        if any(r is None or r.is_open for r in map(catalog.find, _reads(statement))):
            fresh = [e for e in fresh if _counts_anyway(e)]
        errors += fresh
    defaults.close()
    errors += blocks.finish()
    errors.sort(key=lambda e: (e.line or 0, e.column or 0))
    for error in errors:
        _mask(error, parsed.script)
    warnings += [w for checked in found if checked.runs for w in growth_warnings(checked)]
    notes = () if errors else tuple(n for checked in found for n in growth_notes(checked))
    return CheckedText(tuple(found), tuple(errors), tuple(warnings), notes, parsed.script)


class _Outside(Connectors):
    """Describes connectors to a check, which waits for nothing. It needs no broker where columns are declared. A source
    that a statement waits for need not exist yet; what only the source knows then stays open.
    """

    def __init__(self) -> None:
        super().__init__()
        self._open_questions: list[Error] = []

    def open(self, uri: str, values: Mapping[str, Any], declared: Schema | None) -> Source:
        return super().open(uri, {**values, **{name: 0.0 for name in values if name in _WAITS}}, declared)

    def describe(
        self, uri: str, values: Mapping[str, Any], declared: Schema | None, *, table: bool = False
    ) -> Relation:
        try:
            return super().describe(uri, values, declared, table=table)
        except (FileMissing, TopicMissing) as error:
            if not any(values.get(name) for name in _WAITS):
                raise
            self._open_questions.append(error)
            return Relation(
                uri, "source", declared or Schema(()), running=isinstance(error, TopicMissing), uri=uri
            )

    def keyed(self, uri: str, values: Mapping[str, Any], declared: Schema | None) -> str | None:
        try:
            return abilities.keyed(self.open(uri, values, declared), wait=False)
        except Error as error:
            self._open_questions.append(error)
            return None

    def take_open_questions(self) -> list[Error]:
        """Returns why something was left open since the last call."""
        open_questions, self._open_questions = self._open_questions, []
        return open_questions


def _caution(statement: st.Statement, error: Error, script: Script) -> Caution:
    why = script.mask(error.message)
    if isinstance(error, FileMissing):
        return Caution(
            f"the columns cannot be checked: {why}", hint="the app waits for it", place=statement.place
        )
    return Caution(
        f"the key of the table is not known, because it depends on whether the messages have keys: {why}",
        hint="say which: PRIMARY KEY (_key), or WITH ('primary.key' = '') to append every message",
        place=statement.place,
    )


def _declare_lost(parsed: Parsed, catalog: Catalog) -> None:
    """Adds what unreadable CREATE statements would have declared to the catalog, without columns."""
    if not parsed.errors:
        return
    text = parsed.script.expanded
    code = "".join(
        text[p.start : p.end] if p.kind in ("code", "name") else " " * (p.end - p.start) for p in pieces(text)
    )
    known = {
        s.name.lower()
        for s in parsed.statements
        if isinstance(s, st.CreateStream | st.CreateTable | st.CreateView)
    }
    for kind, quoted, plain in _CREATE.findall(code):
        name = quoted.replace("``", "`") or plain
        if name.lower() not in known:
            stream = kind.lower() == "stream"
            catalog.add(Relation(name, "stream" if stream else "table", Schema(()), running=stream))


def _reads(statement: st.Statement) -> set[str]:
    if isinstance(statement, st.Explain):
        return _reads(statement.statement)
    query = getattr(statement, "query", None)
    names = names_read(query) if query is not None else set()
    target = getattr(statement, "target", None)
    return names | ({target.lower()} if isinstance(target, str) else set())


def _counts_anyway(error: Error) -> bool:
    """Returns whether an error cannot be due to unknown columns: the lookup of names takes these into account."""
    return isinstance(error, UnknownName | InvalidOption | NotSupported | SqlSyntaxError)


def _mask(error: Error, script: Script) -> None:
    error.message = script.mask(error.message)
    error.hint = script.mask(error.hint) if error.hint else None


def explain_text(text: CheckedText, engine: Engine = "auto") -> Iterator[tuple[st.Statement, list[str]]]:
    """Returns each statement with the lines of its EXPLAIN."""
    evaluator = Evaluator(_no_spark)
    try:
        for checked in text.statements:
            inner = checked.inner if isinstance(checked, CheckedExplain) else checked
            lines = explain_plan(Planned.of(inner), evaluator, engine=engine)
            yield checked.statement, [text.script.mask(line) for line in lines]
    finally:
        evaluator.close()


def _no_spark(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    raise AssertionError("a check asks nothing of Spark")
