"""Makes the rows of a live aggregate that goes on with another query from the state that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from millpond.errors import Error
from millpond.plan.plans import GroupsPlan, Target
from millpond.plan.statement_plan import plan_statement
from millpond.query.evaluate import Evaluator
from millpond.sql.checked import Checked, CheckedTableAs
from millpond.store.store import Store
from millpond.streaming.aggregate import LiveAggregate
from millpond.tables.registry import find_backend
from millpond.upgrade.decisions import Rebuilt, Regrouped


def regrouped(
    found: Regrouped,
    name: str,
    before: Checked | None,
    after: Checked,
    store: Store,
    evaluator: Evaluator,
) -> Regrouped | Rebuilt:
    """Returns the difference with the rows; or that the table is rebuilt, as the new query fails for a group."""
    assert isinstance(before, CheckedTableAs) and isinstance(after, CheckedTableAs)
    try:
        return replace(found, rows=_rows(name, before, after, found.columns, store, evaluator))
    except Error as error:
        return Rebuilt(f"its query is another, and fails for one of its groups: {error.message}")


def _rows(
    name: str,
    before: CheckedTableAs,
    after: CheckedTableAs,
    columns: Sequence[str],
    store: Store,
    evaluator: Evaluator,
) -> dict[str, pa.Table]:
    """Returns the rows of the tables of a live aggregate: its state, of which it needs ``columns``, and what it
    shows.
    """
    query = f"table:{name}"
    plans = [plan_statement(c, query, Target("table", name)) for c in (before, after)]
    old, new = (p.aggregation for p in plans if isinstance(p, GroupsPlan))
    stored = f"{query}$state"
    there = find_backend("memory").open(stored, old.state, {}, null_keys=True)
    for changes in store.journal.restore(stored):
        there.apply(changes)
    rows = there.snapshot().scan().select(list(columns))
    state = rows.rename_columns(list(new.state.names)).cast(new.state.arrow())
    seen, _ = LiveAggregate(new, evaluator, query).shown(state, {}, store.snapshots())
    return {stored: state, name.lower(): seen.cast(after.relation.schema.arrow())}
