"""Finds out whether a running statement can go on with another text."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from millpond.plan.plans import RowsPlan
from millpond.plan.statement_plan import own_target, plan_statement
from millpond.sql import statements as st
from millpond.sql.blocks import grouped
from millpond.sql.checked import Checked, CheckedInsert, CheckedStreamAs, CheckedTableAs
from millpond.sql.meaning import same_schema
from millpond.sql.parse import parse
from millpond.sql.reads import names_used, targets_of
from millpond.store.catalog import SavedQuery, SavedRelation


def goes_on(name: str, before: Checked | None, after: CheckedInsert, restarted: AbstractSet[str]) -> bool:
    """Returns whether a query into a sink can go on from the position of another one: both have no state, and read the
    same stream, which is not among those that are ``restarted``.
    """
    if not isinstance(before, CheckedInsert) or before.target.name != after.target.name:
        return False
    if before.form is not None or after.form is not None:
        return False
    plans = [plan_statement(c, name, own_target(c)) for c in (before, after)]
    rows = [p for p in plans if isinstance(p, RowsPlan) and p.join is None and p.miss is None]
    names = [p.batch.stream.relation.name.lower() for p in rows]
    return len(names) == 2 and names[0] == names[1] and names[0] not in restarted


def stays_meanwhile(
    entry: SavedRelation,
    after: Checked,
    others: Sequence[st.Statement],
    touched: AbstractSet[str],
    *,
    live: bool,
) -> bool:
    """Returns whether the old statement of a table or stream can go on while the new one is built: what it reads is not
    among what is ``touched``, nothing needs other columns of it, and both do not write errors into one table. ``live``
    says that a view over tables can, too. What a query fills from a stream is built with it, with its new columns.
    """
    old = grouped(parse(entry.text).require())[0]
    if (
        not isinstance(after, CheckedTableAs | CheckedStreamAs)
        or not (after.running or (live and after.relation.live))
        or names_used(old) & touched
    ):
        return False
    if getattr(old, "errors_into", None) or getattr(after.statement, "errors_into", None):
        return False
    name = entry.name.lower()
    stream = isinstance(after, CheckedStreamAs)
    read = any(
        name in names_used(other) for other in others if isinstance(other, st.CreateView) or not stream
    )
    writes = any(name in targets_of(other) for other in others)
    return not writes and (same_schema(entry.schema, after.relation.schema) or not read)


def targets_of_saved(entry: SavedQuery) -> set[str]:
    """Returns what a saved query changes."""
    return targets_of(grouped(parse(entry.text).require())[0])


def shown(targets: set[str]) -> str:
    """Returns names as a text."""
    return ", ".join(f'"{name}"' for name in sorted(targets))
