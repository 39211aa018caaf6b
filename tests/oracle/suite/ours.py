"""Runs the statements of a file here, over the tables that Spark has, and says how the answers differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from millpond import App, Error
from tests.oracle.answers import Answer, difference, ours
from tests.oracle.differences import explain
from tests.oracle.suite.oracle import UNREAD, Shown, Step

PLAIN = "plain_"
"""Before the name of a table: the same rows, without collations."""
VOLATILE = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|now|current_\w+|curdate|localtimestamp|user|session_user|"
    r"input_file\w*|monotonically_increasing_id|spark_partition_id|version|tablesample)\b",
    re.IGNORECASE,
)
"""Statements whose answer is another one each time, or is about Spark itself."""


OPEN = re.compile(r"\b(limit|offset|(first|last|any)(_value)?)\b", re.IGNORECASE)
"""Where rows have no order that tells them all apart, LIMIT may take these or those, and FIRST any of them."""
OPEN_INSIDE = re.compile(r"\([^()]*\blimit\b[^()]*\)", re.IGNORECASE)
"""LIMIT in a subquery: then other rows of the query around it as well."""
OF_SPARK = re.compile(r"INCOMPATIBLE_VIEW_SCHEMA_CHANGE")
"""Errors about views that were made before the tables that they read changed; here tables are compared, not views."""


@dataclass(frozen=True)
class Outcome:
    """A query of a file: whether it is answered the same."""

    text: str
    how: str
    """``same``, ``both`` refuse it, ``open`` which rows it gives, ``unread`` what Spark answers (a type that cannot be
    read out of it) and refused here, or a word of the list of differences, or ``foreign``."""
    spark: str = ""
    ours: str = ""

    @property
    def explained(self) -> bool:
        return self.how != "foreign" and bool(explain(self.how, self.text, spark=self.spark, ours=self.ours))


def outcomes(steps: Iterable[Step]) -> Iterator[Outcome]:
    with App() as app:
        for step in steps:
            counts = step.answer is not None and not OF_SPARK.search(step.answer.error)
            if step.answer is not None and counts and not VOLATILE.search(step.text):
                yield _outcome(app, step.text, step.answer)
            for name, shown in step.tables.items():
                _show(app, name, shown, step.view)


def _outcome(app: App, text: str, theirs: Answer) -> Outcome:
    try:
        mine = ours(lambda: app.sql(text).to_arrow())
    except Exception as error:
        return Outcome(text, "foreign", str(theirs), f"{type(error).__name__}: {error}")
    if theirs.rows == UNREAD and mine.when:
        return Outcome(text, "unread", str(theirs), str(mine))
    found = difference(text, theirs, mine, ordered=False)
    if found and found[0] == "value" and OPEN.search(text):
        if len(theirs.rows) == len(mine.rows) or OPEN_INSIDE.search(text):
            return Outcome(text, "open", *found[1:])
    if found:
        return Outcome(text, *found)
    return Outcome(text, "both" if theirs.when else "same", str(theirs), str(mine))


def _show(app: App, name: str, shown: Shown | None, view: str) -> None:
    """Makes the table as it is on Spark. Where it has columns that a table cannot have, it is a view here: over a
    table of plain texts, if they have collations, else of the query that made it."""
    _try(app, f"DROP VIEW IF EXISTS {name}")
    _try(app, f"DROP TABLE IF EXISTS {name}")
    if shown is None or _make(app, name, shown):
        return
    names = ", ".join(_quoted(c) for c, _ in shown.columns)
    if shown.rows is not None and any(" collate " in t for _, t in shown.columns):
        plain = tuple((c, re.sub(r" collate \w+", "", t)) for c, t in shown.columns)
        casts = ", ".join(f"CAST({_quoted(c)} AS {t}) AS {_quoted(c)}" for c, t in shown.columns)
        _try(app, f"DROP TABLE IF EXISTS {PLAIN}{name}")
        if _make(app, f"{PLAIN}{name}", Shown(plain, shown.rows)):
            _try(app, f"CREATE VIEW {name} AS SELECT {casts} FROM {PLAIN}{name}")
    elif view:
        _try(app, f"CREATE VIEW {name} ({names}) AS {view}")


def _make(app: App, name: str, shown: Shown) -> bool:
    if shown.rows is None:
        return False
    columns = ", ".join(f"{_quoted(c)} {t}" for c, t in shown.columns)
    try:
        rows = shown.rows.to_pylist(maps_as_pydicts="strict")
    except TypeError:
        return False  # a map whose keys are arrays, which a dict cannot have
    except (UnicodeDecodeError, OverflowError):
        return True  # a text that is none, a date that Python has not: it is not there
    if not _try(app, f"CREATE TABLE {name} ({columns})"):
        return False
    app.table(name.strip("`")).bulk_insert(rows)
    return True


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _try(app: App, text: str) -> bool:
    try:
        app.sql(text)
    except Error:
        return False
    return True
