"""Runs a file on Spark, and keeps what it answers and what is in the tables that it makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv

from millpond.engine.collect import collect
from tests.oracle.answers import Answer, answer_of
from tests.oracle.engines import SETTINGS, said
from tests.oracle.suite.files import data, statements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LEADING = re.compile(r"^(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*", re.DOTALL)
_QUERY = re.compile(r"(select|with|values|from|table)\b", re.IGNORECASE)
_WRITES = re.compile(r"\b(insert\s+(into|overwrite)|merge\s+into)\b", re.IGNORECASE)
_SETTING = re.compile(r"(set|reset|use|add|clear|cache|uncache|refresh)\b", re.IGNORECASE)
_NAME = r"(?:if\s+(?:not\s+)?exists\s+)?([\w.`]+)"
_MAKES = re.compile(
    rf"^create\s+(?:or\s+replace\s+)?(?:global\s+)?(?:temp(?:orary)?\s+)?(?:table|view)\s+{_NAME}",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    rf"\binsert\s+(?:into|overwrite)\s+(?:table\s+)?{_NAME}|^(?:drop|alter|truncate)\s+(?:table|view)\s+{_NAME}",
    re.IGNORECASE,
)
_VIEW = re.compile(r"create\b[^(]*?\bview\b", re.IGNORECASE)
_BODY = re.compile(
    r"^create\b[^(]*?\bview\s+[\w.`]+\s*(?:\([^()]*\)\s*)?as\s+(.*)$", re.IGNORECASE | re.DOTALL
)
ROWS_AT_MOST = 20_000
UNREAD = (("?",),)
"""The rows of an answer that cannot be read: intervals of months, and other types that Arrow has not."""
_ROW = (
    "unique1 INT, unique2 INT, two INT, four INT, ten INT, twenty INT, hundred INT, thousand INT, twothousand INT, "
    "fivethous INT, tenthous INT, odd INT, even INT, stringu1 STRING, stringu2 STRING, string4 STRING"
)
TABLES = {"onek": ("onek", _ROW), "tenk1": ("tenk", _ROW), "aggtest": ("agg", "a INT, b FLOAT")}
"""Tables that the tests find there: (file, columns)."""
VIEWS = {
    "testdata": "SELECT CAST(id AS INT) AS key, CAST(id AS STRING) AS value FROM range(1, 101)",
    "arraydata": "VALUES (array(1, 2, 3), array(array(1, 2, 3))), (array(2, 3, 4), array(array(2, 3, 4))) "
    "AS t(arraycol, nestedarraycol)",
    "mapdata": "VALUES (map(1, 'a1', 2, 'b1', 3, 'c1', 4, 'd1', 5, 'e1')), (map(1, 'a2', 2, 'b2', 3, 'c2', 4, 'd2')), "
    "(map(1, 'a3', 2, 'b3', 3, 'c3')), (map(1, 'a4', 2, 'b4')), (map(1, 'a5')) AS t(mapcol)",
}


@dataclass(frozen=True)
class Shown:
    """A table as it is on Spark: its columns and rows."""

    columns: tuple[tuple[str, str], ...]
    rows: pa.Table | None
    """None where the rows have types that Arrow has not."""


@dataclass(frozen=True)
class Step:
    """A statement: what Spark answers if it is a query, and the tables that it has made or changed."""

    text: str
    answer: Answer | None = None
    tables: dict[str, Shown | None] = field(default_factory=dict)
    view: str = ""
    """The query of the view that it makes."""


def is_query(text: str) -> bool:
    rest = text[_LEADING.match(text).end() :]  # type: ignore[union-attr]
    return _QUERY.match(rest) is not None and not _WRITES.search(text)


class Theirs:
    """Spark, in a session of its own for each file."""

    def __init__(self, spark: SparkSession):
        self._spark = spark
        self._shared: dict[str, Shown] = {}

    def run(self, name: str) -> Iterator[Step]:
        session = self._spark.newSession()
        for key, value in SETTINGS.items():
            session.conf.set(key, value)
        texts = statements(name)
        yield Step("", tables=dict(self._beside(session, " ".join(texts).lower())))
        made: set[str] = set()
        views: dict[str, str] = {}
        try:
            for text in texts:
                step = self._step(session, text)
                made.update(step.tables)
                yield step
                for view, query in views.items() if step.tables else ():
                    if view not in step.tables:
                        yield Step("", tables={view: _shown(session, view)}, view=query)
                if _VIEW.match(text):
                    views.update(dict.fromkeys(step.tables, step.view))
        finally:
            for table in made:
                for kind in ("VIEW", "TABLE"):
                    _try(session, f"DROP {kind} IF EXISTS {table}")

    def _step(self, session: SparkSession, text: str) -> Step:
        if is_query(text):
            return Step(text, ask(session, text))
        if _SETTING.match(text):
            return Step(text)
        names = {
            found
            for m in (_MAKES.match(text), *_CHANGES.finditer(text))
            if m
            for found in m.groups()
            if found
        }
        body = _BODY.match(text)
        answer = ask(session, body[1]) if body and is_query(body[1]) else None
        _try(session, text)
        tables = {name: _shown(session, name) for name in names}
        return Step(body[1] if body and answer else text, answer, tables, body[1] if body else "")

    def _beside(self, session: SparkSession, text: str) -> Iterator[tuple[str, Shown]]:
        """The tables that every file finds there, if a text names them."""
        for name, (file, columns) in TABLES.items():
            if name not in text:
                continue
            if name not in self._shared:
                options = csv.ParseOptions(delimiter="\t")
                names = [c.split()[0] for c in columns.split(", ")]
                rows = csv.read_csv(pa.BufferReader(data(file)), csv.ReadOptions(column_names=names), options)
                casts = [
                    f"CAST({c.split()[0]} AS {c.split()[1]}) AS {c.split()[0]}" for c in columns.split(", ")
                ]
                frame = session.createDataFrame(rows).selectExpr(*casts)
                self._shared[name] = _kept(frame)
            rows = self._shared[name].rows
            assert rows is not None
            session.createDataFrame(rows).createOrReplaceTempView(name)
            yield name, self._shared[name]
        for name in VIEWS:
            if name not in text:
                continue
            frame = session.sql(VIEWS[name])
            frame.createOrReplaceTempView(name)
            yield name, _kept(frame)


def ask(session: SparkSession, text: str) -> Answer:
    try:
        frame = session.sql(text)
    except Exception as error:
        return Answer(error=said(error), when="check")
    try:
        return answer_of(collect(frame))
    except Exception as error:
        message = said(error)
        if (
            isinstance(error, TypeError)
            or "UNSUPPORTED_DATATYPE" in message
            or "UNSUPPORTED_ARROWTYPE" in message
        ):
            return Answer(types=tuple(f.dataType.simpleString() for f in frame.schema.fields), rows=UNREAD)
        return Answer(error=message, when="run")


def _try(session: SparkSession, text: str) -> bool:
    try:
        session.sql(text).collect()
    except Exception:
        return False
    return True


def _shown(session: SparkSession, name: str) -> Shown | None:
    """What a name stands for now; None if for nothing that can be shown."""
    try:
        return _kept(session.table(name).limit(ROWS_AT_MOST))
    except Exception:
        return None


def _kept(frame: DataFrame) -> Shown:
    columns = tuple((f.name, f.dataType.simpleString()) for f in frame.schema.fields)
    try:
        return Shown(columns, frame.toArrow())
    except Exception:
        return Shown(columns, None)
