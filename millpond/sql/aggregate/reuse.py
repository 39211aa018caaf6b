"""Finds out whether the state of a live aggregate is enough for another one."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millpond.sql.aggregate.model import Aggregation
from millpond.sql.meaning import OptionsOf, meaning, without_aliases
from millpond.sql.resolve import Resolved


def reused_columns(
    before: Aggregation, after: Aggregation, options_before: OptionsOf, options_after: OptionsOf
) -> tuple[str, ...] | None:
    """Returns the columns of the state of ``before`` that are those of the state of ``after``, in their order; None if
    that needs more, or groups other rows. Windows and states with single values are never reused.
    """
    for one in (before, after):
        if one.window is not None or one.kept or one.once or one.final.inputs or None in one.keys:
            return None
    keys = before.state.key
    if not keys or keys != after.state.key:
        return None
    grouped = [
        meaning(replace(one.partial, expression=_only(one.partial, keys)), options)
        for one, options in ((before, options_before), (after, options_after))
    ]
    if grouped[0] != grouped[1]:
        return None
    there = {(_column(before, c.name), c.type): c.name for c in before.state if c.name not in keys}
    found = list(keys)
    for column in after.state:
        if column.name not in keys:
            name = there.get((_column(after, column.name), column.type))
            if name is None:
                return None
            found.append(name)
    return tuple(found)


def _only(query: Resolved, names: tuple[str, ...]) -> exp.Expr:
    """Returns a query with these of its columns only."""
    expression = query.expression.copy()
    expression.set("expressions", [e for e in expression.expressions if e.alias in names])
    return expression


def _column(aggregation: Aggregation, name: str) -> str:
    """Returns how a column of the state is made, and how it is merged."""
    return " ".join(_made(query, name) for query in (aggregation.partial, aggregation.merge))


def _made(query: Resolved, name: str) -> str:
    one = without_aliases(replace(query, expression=_only(query, (name,))))
    for column in one.find_all(exp.Column):
        if column.name == name:
            column.set("this", exp.to_identifier("state"))
    (shown,) = one.expressions
    return repr(shown.this)
