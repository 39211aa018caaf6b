"""Checks a table that follows a query over tables: what its query may be, and what its key is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlglot import exp

from millpond.errors import Place, SqlError, without_passwords
from millpond.options import Setting
from millpond.sql.calls import calls_in
from millpond.sql.catalog import Relation
from millpond.sql.functions import by_name, function_classes
from millpond.sql.grouping import is_aggregated
from millpond.sql.incremental.order_limit import in_total_order
from millpond.sql.incremental.tree import keep_by_changes
from millpond.sql.resolve import Resolved


def check_live(resolved: Resolved, at: Place | None) -> Iterator[SqlError]:
    """Refuses functions whose values change: their results cannot be followed."""
    for name in changing_functions(resolved.expression):
        yield SqlError(
            f"a query that follows tables cannot use {name}(): its rows would change by themselves",
            hint="'refresh' = 'once' makes a copy; CREATE VIEW runs the query each time",
            place=at,
        )


def check_following(
    resolved: Resolved | None,
    relation: Relation,
    values: Mapping[str, Any],
    settings: Sequence[Setting],
    at: Place | None,
    *,
    live: bool,
) -> Iterator[SqlError]:
    """Refuses values of 'refresh' and 'consistency' that do not fit the table, or its query, if it has one."""
    if resolved is not None:
        yield from _check_refresh(resolved, values["refresh"], at, live=live)
    if values["state.max_memory"] is not None and (resolved is None or not live):
        yield SqlError("'state.max_memory' is for a table that follows tables", hint="leave it out", place=at)
    if values["consistency"] == "commit":
        option = next(x for x in settings if x.name.lower() == "consistency")
        yield from _check_in_commit(resolved, relation, values["refresh"], option.place or at, live=live)


def _check_refresh(resolved: Resolved, refresh: str, at: Place | None, *, live: bool) -> Iterator[SqlError]:
    """Refuses 'incremental' for a query that would be recomputed, and for a table that does not follow tables."""
    if refresh not in ("incremental", "full"):
        return
    if not live:
        yield SqlError(
            f"'refresh' = '{refresh}' is for a table that follows tables",
            hint="leave it out: other tables follow their sources in their own way",
            place=at,
        )
        return
    how = keep_by_changes(in_total_order(resolved))
    if refresh == "incremental" and how.root is None:
        yield SqlError(
            f"'refresh' = 'incremental': {how.reason} is recomputed after a change",
            hint="leave the option out, or write the query without it",
            place=at,
        )


def _check_in_commit(
    resolved: Resolved | None, relation: Relation, refresh: str, at: Place | None, *, live: bool
) -> Iterator[SqlError]:
    """Refuses 'consistency' = 'commit' for a table that cannot change in the commit that changes its inputs."""
    option = "'consistency' = 'commit'"
    if resolved is None or not live:
        yield SqlError(
            f"{option} is for a table that follows tables",
            hint="leave it out: other tables follow their sources in their own way",
            place=at,
        )
        return
    tables = {i.relation.name: i.relation for i in resolved.inputs} | {relation.name: relation}
    for table in tables.values():
        if table.stored_in is not None or table.evicts:
            where = "a cache" if table.stored_in is None else without_passwords(table.stored_in)
            yield SqlError(
                f'{option}: table "{table.name}" is stored in {where}, which has commits of its own',
                hint="leave the option out: then the table changes after each commit",
                place=at,
            )
            return
    how = keep_by_changes(in_total_order(resolved))
    reason = "'refresh' = 'full'" if refresh == "full" else how.reason
    if refresh == "full" or how.root is None:
        yield SqlError(
            f"{option}: with {reason} the table is recomputed after a change, which no commit waits for",
            hint="leave the option out, or write the query without it",
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
