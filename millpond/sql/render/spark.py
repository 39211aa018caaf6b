"""Renders a resolved query as Spark SQL text."""

from __future__ import annotations

import re
from datetime import datetime

from sqlglot import exp

from millpond.clock import Clock
from millpond.sql.dialect import Millpond
from millpond.sql.rewrite import FOR_SPARK, rewrite
from millpond.types import type_name

_ASKS = re.compile(
    r"'(?:[^'\\]|\\.)*'|`[^`]*`"
    r"|\b(NOW\(\)|CURRENT_TIMESTAMP\(\)|LOCALTIMESTAMP\(\)|UNIX_TIMESTAMP\(\)|CURRENT_DATE\b(?:\(\))?)",
    re.DOTALL,
)
"""Strings and names, which remain, and calls that read the clock."""


def render(query: exp.Expr) -> str:
    return _with_whole_rows(_named(rewrite(query, FOR_SPARK))).sql(dialect=Millpond, comments=False)


def text(value: str) -> str:
    """Returns a string literal."""
    return exp.Literal.string(value).sql(dialect=Millpond)


def expression(node: exp.Expr) -> str:
    """Renders one expression, as it is in the tree."""
    return _named(node.copy()).sql(dialect=Millpond, comments=False)


def at_time(sql: str, clock: Clock) -> str:
    """Returns the text with a fixed time in place of calls that read Spark's clock, if the clock is not the
    machine's.
    """
    return _ASKS.sub(lambda found: _time_literal(found, clock.now()), sql) if clock.stands else sql


def _time_literal(found: re.Match[str], now: datetime) -> str:
    match (found[1] or "").partition("(")[0]:
        case "":
            return found[0]
        case "CURRENT_DATE":
            return f"DATE '{now:%Y-%m-%d}'"
        case "UNIX_TIMESTAMP":
            return f"CAST({int(now.timestamp())} AS BIGINT)"
        case "LOCALTIMESTAMP":
            return f"TIMESTAMP_NTZ '{now:%Y-%m-%d %H:%M:%S.%f}'"
    return f"TIMESTAMP '{now:%Y-%m-%d %H:%M:%S.%f}Z'"


def _named(tree: exp.Expr) -> exp.Expr:
    """Replaces Python functions with their names in Spark, with arguments of their types."""
    for node in list(tree.find_all(exp.Anonymous)):
        own = node.meta.get("function")
        if own is not None:
            types = (exp.DataType.build(type_name(t), dialect=Millpond) for t in own.arguments)
            given = [exp.Cast(this=a, to=t) for a, t in zip(node.expressions, types, strict=True)]
            node.set("this", own.key)
            node.set("expressions", given)
    return tree


def _with_whole_rows(tree: exp.Expr) -> exp.Expr:
    """Replaces a struct that is a row of VALUES with a call: there, Spark reads STRUCT(…) as the columns of the row."""
    for values in list(tree.find_all(exp.Values)):
        for row in values.expressions:
            only = row.expressions[0] if isinstance(row, exp.Tuple) and len(row.expressions) == 1 else row
            struct = only.unnest()
            fields = struct.expressions if isinstance(struct, exp.Struct) else []
            if fields and all(isinstance(f, exp.PropertyEQ) for f in fields):
                pairs = [(exp.Literal.string(f.name), f.expression) for f in fields]
                call = exp.Anonymous(
                    this="named_struct", expressions=[part for pair in pairs for part in pair]
                )
                struct.replace(call)
    return tree
