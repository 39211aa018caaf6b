"""Translates Spark's exceptions to errors of Millpond."""

from __future__ import annotations

import re

from millpond import errors
from millpond.connectors.spark import spark_formats
from millpond.engine.jvm import lost
from millpond.errors import EngineLost, Error, QueryFailed, ResultTooLarge, TimedOut
from millpond.journal.blobs import corrupt

_KNOWN = {
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": (
        "scalar subquery returned more than one row",
        "make its condition unique, aggregate it, or add LIMIT 1",
    ),
    "DIVIDE_BY_ZERO": ("division by zero", "NULLIF(divisor, 0) or TRY_DIVIDE gives NULL instead"),
    "RECURSION_LEVEL_LIMIT_EXCEEDED": (
        "WITH RECURSIVE goes on for more than 100 steps",
        "give the query that reads itself a condition that ends it",
    ),
    "RECURSION_ROW_LIMIT_EXCEEDED": (
        "WITH RECURSIVE gives more than 1,000,000 rows",
        "give the query that reads itself a condition that ends it",
    ),
    "CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE": (
        "WITH RECURSIVE gives another type than it begins with",
        "CAST what the query begins with to the wider type",
    ),
    "ARITHMETIC_OVERFLOW": ("overflow", "CAST to a wider type first"),
    "BINARY_ARITHMETIC_OVERFLOW": ("overflow", "CAST to a wider type first"),
    "CAST_OVERFLOW": ("a value does not fit the type it is cast to", "CAST to a wider type"),
    "CAST_INVALID_INPUT": (
        "a value cannot be cast",
        "use try_cast, which gives NULL",
    ),
    "NUMERIC_VALUE_OUT_OF_RANGE": ("a number does not fit its type", "CAST to a wider type"),
    "INVALID_ARRAY_INDEX": ("an array index is out of range", "use try_element_at or get"),
}
_TOO_LARGE = "spark.driver.maxResultSize"
_DAMAGED = ("FAILED_READ_FILE", "CRC checksum verification failed")
_CLASS = re.compile(r"\[([A-Z0-9_]+)(?:\.[A-Z0-9_]+)*\]\s*([^\n]*)")


_OF_THE_PLAN = ("AnalysisException", "ParseException")
"""Errors before any row is read. User input is checked before Spark gets it, so these are about Spark's planner."""
_OF_SPARK = ("INTERNAL_ERROR", "MISSING_ATTRIBUTES", "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY")
_TAIL = re.compile(r"\s*(?:SQLSTATE: |If necessary set |; line \d+ pos).*", re.DOTALL)
"""What Spark adds for programs, and for users who can change its configuration."""
_TOLERANT = re.compile(r"\s*Use `(try_\w+)`.*", re.DOTALL)
_JAVA = re.compile(r"\b(?:java|scala|org\.apache)\.[\w.]+")
_UNKNOWN_TYPE = re.compile(r"\b(\w+Type)\([^()]*\) is not supported in conversion to Arrow")
_CALLING = "An error occurred while calling"
_CAUSE = re.compile(r"^Caused by: [\w.$]+(?:: (.*))?$", re.MULTILINE)
_LOST_COLUMN = re.compile(r"NoSuchElementException: key not found: \w+#\d+")
_OURS = re.compile(r"^millpond\.errors\.(\w+): ([^\n]*)", re.MULTILINE)
"""An error of Millpond that was raised in one of Spark's Python processes."""


def unknown_type(kind: str) -> QueryFailed:
    """Returns the error for a result of Spark with a type that tables and results do not have."""
    return QueryFailed(
        f"an answer has a column of a type that is not known here ({kind})",
        hint="cast it to STRING, a number or a time",
    )


def explain(error: BaseException) -> Error:
    """Returns the error that a person should see."""
    if isinstance(error, Error):
        return error
    gone = lost(error)
    if gone is not None:
        return gone
    text = str(error)
    if "ExecutorLostFailure" in text or "FetchFailed" in text:
        return EngineLost("the executors that worked on a batch were lost")
    if _TOO_LARGE in text:
        return ResultTooLarge(
            f"the result is larger than executors may pass to the driver at once ({_TOO_LARGE})",
            hint="aggregate or filter it first, or allow more",
        )
    if "failed to connect back" in text:
        return TimedOut("a Python process of Spark did not come up in time: the machine is busy")
    for connector in spark_formats().values():
        if (explained := connector.explain(text)) is not None:
            return explained
    ours = _OURS.search(text)
    if ours is not None:
        kind = getattr(errors, ours[1], None)
        if isinstance(kind, type) and issubclass(kind, Error) and kind is not errors.CheckFailed:
            return kind(ours[2].strip())
    for name, rest in _CLASS.findall(text):
        if name in _KNOWN:
            message, hint = _KNOWN[name]
            detail = rest.split(" Use ")[0].split(" If necessary")[0].strip()
            return QueryFailed(
                f"{message}: {detail}" if "value" in message and detail else message, hint=hint
            )
    if all(words in text for words in _DAMAGED):
        return corrupt("a file of a stream has bytes that are not those that were written")
    if _LOST_COLUMN.search(text):
        return _no_plan(": its optimizer has lost a column")
    match = _CLASS.search(text)
    if match and (type(error).__name__ in _OF_THE_PLAN or match[1].startswith(_OF_SPARK)):
        # Of UNSUPPORTED_FEATURE.SET_OPERATION_ON_MAP_TYPE the last part is the most specific.
        last = match[0].partition("]")[0].strip("[").rpartition(".")[2]
        why = "" if match[1] == "INTERNAL_ERROR" else f": {last.lower().replace('_', ' ')}"
        return _no_plan(why)
    unknown = _UNKNOWN_TYPE.search(text)
    if unknown is not None:
        return unknown_type(unknown[1].removesuffix("Type").removesuffix("Interval"))
    causes = _CAUSE.findall(text) if text.startswith(_CALLING) else []
    lines = causes[-1:] or text.strip().splitlines() or [repr(error)]
    return _of_a_value(match[2] if match else lines[0])


def is_unknown(error: BaseException) -> bool:
    """Returns whether nothing says what an exception of Spark is about: it has neither a name that Spark gives to
    errors of queries and values, nor one of ours.
    """
    text = str(error)
    if isinstance(error, Error) or _CLASS.search(text) or _OURS.search(text):
        return False
    return type(explain(error)) is QueryFailed


def _no_plan(why: str) -> QueryFailed:
    return QueryFailed(
        f"Spark has no plan for this query{why}",
        hint="only Spark can evaluate it (EXPLAIN says why); split it into steps, or write it in another form",
    )


def _of_a_value(line: str) -> QueryFailed:
    """Returns the error for what a Spark function reports about a value, without what is about Spark itself."""
    tolerant = _TOLERANT.search(line)
    line = _TAIL.sub("", _TOLERANT.sub("", line)).strip().removeprefix("requirement failed: ")
    if not line or _JAVA.search(line):
        line = "a value is not one that the function takes"
    hint = f"{tolerant[1].upper()} gives NULL instead" if tolerant else "check the values of the query"
    return QueryFailed(line, hint=hint)
