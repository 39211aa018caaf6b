"""Runs the statements of a file here, over the tables that Spark has, and says how the answers differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from millpond import App, Error
from tests.oracle.answers import Answer, difference, ours
from tests.oracle.differences import explain
from tests.oracle.suite.oracle import Shown, Step

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
    """``same``, ``both`` refuse it, ``open`` which rows it gives, or a word of the list of differences, or
    ``foreign``."""
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
                _show(app, name, shown)


def _outcome(app: App, text: str, theirs: Answer) -> Outcome:
    try:
        mine = ours(lambda: app.sql(text).to_arrow())
    except Exception as error:
        return Outcome(text, "foreign", str(theirs), f"{type(error).__name__}: {error}")
    found = difference(text, theirs, mine, ordered=False)
    if found and found[0] == "value" and OPEN.search(text):
        if len(theirs.rows) == len(mine.rows) or OPEN_INSIDE.search(text):
            return Outcome(text, "open", *found[1:])
    if found:
        return Outcome(text, *found)
    return Outcome(text, "both" if theirs.when else "same", str(theirs), str(mine))


def _show(app: App, name: str, shown: Shown | None) -> None:
    """Makes the table as it is on Spark. One with columns that a table cannot have is not there."""
    _try(app, f"DROP TABLE IF EXISTS {name}")
    if shown is None:
        return
    columns = ", ".join(f"`{c.replace('`', '``')}` {t}" for c, t in shown.columns)
    try:
        rows = shown.rows.to_pylist(maps_as_pydicts="strict")
    except (UnicodeDecodeError, OverflowError):
        return  # a text that is none, a date that Python has not
    if _try(app, f"CREATE TABLE {name} ({columns})"):
        app.table(name.strip("`")).bulk_insert(rows)


def _try(app: App, text: str) -> bool:
    try:
        app.sql(text)
    except Error:
        return False
    return True
