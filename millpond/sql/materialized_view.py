"""Checks a table that follows a query over tables: what its query may be, and what its key is."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Place, SqlError
from millpond.sql.calls import calls_in
from millpond.sql.functions import by_name, function_classes
from millpond.sql.grouping import is_aggregated
from millpond.sql.resolve import Resolved


def check_live(resolved: Resolved, at: Place | None) -> Iterator[SqlError]:
    """Refuses functions whose values change: their results cannot be followed."""
    for name in changing_functions(resolved.expression):
        yield SqlError(
            f"a query that follows tables cannot use {name}(): its rows would change by themselves",
            hint="'refresh' = 'once' makes a copy; CREATE VIEW runs the query each time",
            place=at,
        )


def changing_functions(tree: exp.Expr) -> Iterator[str]:
    """Yields the functions in an expression that do not return the same value each time."""
    for name, node in calls_in(tree):
        if function_classes().get(name) not in ("volatile", "session"):
            continue
        given = node.expressions if isinstance(node, exp.Anonymous) else node.args.get("this")
        if not (given and by_name()[name].steady):
            yield name


def follows_its_query(table: str, place: Place | None = None) -> SqlError:
    """Returns the error for a change of a live table."""
    return SqlError(
        f'table "{table}" follows its query: its rows cannot be changed',
        hint="change the tables that it reads, or make a copy WITH ('refresh' = 'once')",
        place=place,
    )


def grouping_outputs(resolved: Resolved) -> tuple[int, ...]:
    """Returns the outputs that are the columns of GROUP BY: the key of the groups. Empty if one of them is not
    an output.
    """
    select = resolved.expression
    if not isinstance(select, exp.Select) or not is_aggregated(select):
        return ()
    group = select.args.get("group")
    keys = group.expressions if group is not None else []
    outputs = [p.unalias() for p in select.expressions]
    found = [outputs.index(k) for k in keys if k in outputs]
    return tuple(found) if len(found) == len(keys) else ()
