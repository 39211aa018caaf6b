"""Translates DuckDB's evaluation errors into errors of the query."""

from __future__ import annotations

import re

_KNOWN: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"Out of Memory Error"),
        "the query needs more memory than it may take",
        "read, sort or group fewer rows or columns at a time",
    ),
    (
        re.compile(r"Max expression depth limit"),
        "the query is nested too deeply",
        "take a part of it out into a view, or use IN (…) instead of many ORs",
    ),
    (re.compile(r"INTERRUPT Error"), "the query was ended", "ask for less at a time"),
    (
        re.compile(r"Division by zero"),
        "division by zero",
        "NULLIF(divisor, 0) or TRY_DIVIDE gives NULL instead",
    ),
    (
        re.compile(r"More than one row returned by a subquery"),
        "scalar subquery returned more than one row",
        "make its condition unique, aggregate it, or add LIMIT 1",
    ),
    (
        re.compile(r"string 'not an? index of the array: (?P<value>.*?)' to", re.DOTALL),
        "an array index is out of range: {value}",
        "use try_element_at or get",
    ),
    (
        re.compile(r'(?:date|time|timestamp) field value out of range: "(?P<value>.*?)"', re.DOTALL),
        "'{value}' is not a date or time",
        "TRY_CAST gives NULL instead",
    ),
    (
        re.compile(r"string 'not an? (?P<type>[^:]+): (?P<value>.*?)' to", re.DOTALL),
        "cannot cast '{value}' to {type}",
        "TRY_CAST gives NULL instead",
    ),
    (
        re.compile(r"Overflow in (?P<what>addition|subtraction|multiplication|division|negation)"),
        "overflow in {what}",
        "cast an operand to a wider type, or use TRY_ADD, TRY_SUBTRACT, TRY_MULTIPLY",
    ),
    (
        re.compile(
            r"Overflow on abs|[Oo]ut of [Rr]ange|[Oo]verflow|exceed|Could not cast value|Failed to cast"
            r'|not in timestamp range|Could not convert string "'
        ),
        "a value is out of the range of its type",
        "cast to a wider type, or use TRY_CAST to get NULL instead",
    ),
    (
        re.compile(r"Could not convert string '' to INT32"),
        "a text is not a date or time",
        "TRY_CAST gives NULL instead",
    ),
    (
        re.compile(r"Could not convert string '(?P<value>.*?)' to (?P<type>\w+)", re.DOTALL),
        "cannot cast '{value}' to {type}",
        "TRY_CAST gives NULL instead",
    ),
    (re.compile(r"Invalid Input Error: (?P<text>.*)", re.DOTALL), "{text}", "check the values of the query"),
)


def explain_error(error: BaseException) -> tuple[str, str] | None:
    """Returns the message and hint for an error that DuckDB raised while it ran rendered SQL; None for others."""
    said = str(error)
    for pattern, message, hint in _KNOWN:
        found = pattern.search(said)
        if found:
            return message.format(**found.groupdict()), hint
    return None
