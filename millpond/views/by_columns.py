"""Keeps a view by columns where each of its rows comes from one row of the table that changes: a filter, a join.

The query over the rows that left is what leaves the view, and over those that came what comes. So a change that touches
many rows of the view costs a query over them, and not a step of operators for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes
from millpond.errors import QueryFailed
from millpond.plan.plans import ViewPlan
from millpond.query.evaluate import Evaluator
from millpond.sql.columns_read import columns_read
from millpond.sql.incremental.nodes import JoinNode, Node, ScanNode, StepNode
from millpond.sql.incremental.shown_columns import shown_columns
from millpond.store.change_feed import Touched
from millpond.tables.base import Snapshot
from millpond.types import Schema
from millpond.views.expressions import answer_of
from millpond.views.target import TargetRows

_MOST = 4
"""A change of more than one row of so many of a table is not kept so."""


class ByColumns:
    """Finds the changes of one view. Its operators keep no state: filters, columns and joins."""

    def __init__(self, plan: ViewPlan, schema: Schema, evaluator: Evaluator, target: TargetRows):
        self._schema = schema
        self._evaluator = evaluator
        self._target = target
        self._inputs = plan.query.inputs
        self._read = columns_read(plan.query)
        self._answer = answer_of(evaluator, plan.query)
        self._query = plan.query
        root = plan.by_changes.root
        self._root = root
        self._shown: dict[str, list[str]] = {}
        """By view: the columns that the view of these rows shows as they are, and that nothing else reads."""
        if schema.key and root is not None:
            origins = list(zip(schema.names, shown_columns(root) or (), strict=False))
            keyed = {origin for name, origin in origins if name in schema.key}
            for view, column in sorted({o for _, o in origins if o is not None and o not in keyed}):
                self._shown.setdefault(view, []).append(column)

    @cached_property
    def _tables(self) -> dict[str, str]:
        """Returns the tables that it is found by, in lower case, with their views in the query."""
        found = [] if self._root is None else _scans(self._root) or []
        if sorted(scan.view for scan, _ in found) != sorted(i.view for i in self._inputs):
            return {}
        tables = [scan.table.lower() for scan, _ in found]
        return {
            scan.table.lower(): scan.view
            for scan, each in found
            if each
            and tables.count(scan.table.lower()) == 1
            and self._evaluator.reads_once(self._query, scan.view)
        }

    def finds(self, before: Mapping[str, Snapshot], touched: Mapping[str, Touched]) -> bool:
        """Returns whether these changes are found so: of some rows of one table, of which each row has its own rows."""
        names = {i.relation.name.lower() for i in self._inputs} & touched.keys()
        return len(names) == 1 and all(
            name in self._tables
            and name in before
            and not touched[name].everything
            and len(touched[name]) * _MOST <= len(before[name]) + _MOST
            for name in names
        )

    def changes(
        self,
        now: Callable[[str], Snapshot],
        before: Mapping[str, Snapshot],
        touched: Mapping[str, Touched],
        own: Snapshot,
        joined: tuple[str, pa.Table] | None = None,
    ) -> Changes | None:
        """Returns the changes of the view; None if only the whole query finds them, or says what is wrong with them.
        ``joined`` has a view in the query and the rows of its table that can join with the changed rows, if these are
        known: each table is read once, so that no other rows of it matter.
        """
        (name,) = (n for n in self._tables if n in touched)
        rows = touched[name].between(before[name], now(name))
        if rows is None:
            return None
        known = dict([joined] if joined is not None else [])
        others = {
            i.view: _columns(known[i.view], self._read[i.view])
            if i.view in known
            else now(i.relation.name).scan(self._read[i.view])
            for i in self._inputs
            if i.relation.name.lower() != name
        }
        view = self._tables[name]
        replaced = self._replaced(view, *rows)
        if replaced is not None:
            return Changes(self._answer({**others, view: replaced}).cast(self._schema.arrow()))
        gone, came = (
            self._answer({**others, view: _columns(part, self._read[view])}).cast(self._schema.arrow())
            for part in rows
        )
        try:
            return self._keyed(gone, came, own) if self._schema.key else self._numbered(gone, came, own)
        except QueryFailed:
            return None

    def _replaced(self, view: str, gone: pa.Table, came: pa.Table) -> pa.Table | None:
        """Returns the changed rows, if each replaces a row that differs only in columns that the view shows as they
        are: then the rows of the view have other values there, and none comes or goes. None if that is not known.
        """
        shown, names = self._shown.get(view), self._read[view]
        key = list(next(i.relation.schema.key for i in self._inputs if i.view == view))
        if not shown or not key or names is None or gone.num_rows != came.num_rows:
            return None
        gone, came = (
            rows.take(pc.sort_indices(rows, [(k, "ascending") for k in key])) for rows in (gone, came)
        )
        if not gone.select(key).equals(came.select(key)):
            return None
        gone, came = gone.select(names), came.select(names)
        if any(pa.types.is_floating(t) or pa.types.is_nested(t) for t in came.schema.types):
            return None
        others = [name for name in names if name not in shown]
        if others and not gone.select(others).equals(came.select(others)):
            return None
        return came.filter(_differ(gone.select(shown), came.select(shown)))

    def _keyed(self, gone: pa.Table, came: pa.Table, own: Snapshot) -> Changes | None:
        key = list(self._schema.key)
        if gone.num_rows == came.num_rows:
            if not gone.select(key).equals(came.select(key)):
                order = [(k, "ascending") for k in key]
                gone, came = (rows.take(pc.sort_indices(rows, order)) for rows in (gone, came))
            if gone.select(key).equals(came.select(key)):
                return Changes(came.filter(_differ(gone, came)))
        found = self._evaluator.difference(gone, came, key)
        put = found.put.select(key)
        new = put.join(gone.select(key), key, join_type="left anti")
        return None if new.num_rows and own.get(key, new, nulls=True).num_rows else found

    def _numbered(self, gone: pa.Table, came: pa.Table, own: Snapshot) -> Changes | None:
        put = came.append_column(ROW, pa.nulls(came.num_rows, pa.int64()))
        if not gone.num_rows:
            return Changes(put)
        columns = self._target.columns(own)
        if not columns:
            return None
        keys = gone.select(columns).group_by(columns).aggregate([])
        there = own.get(columns, keys.select(columns), nulls=True, rows=True)
        left = self._evaluator.difference(there, gone, ())
        if left.put.num_rows:
            return None
        kept = left.rows[ROW].drop_null()
        ended = there.filter(pc.invert(pc.is_in(there[ROW], value_set=kept.combine_chunks())))
        deleted = pa.array([True] * ended.num_rows + [False] * put.num_rows, pa.bool_())
        return Changes(pa.concat_tables([ended.select(put.column_names), put]), deleted)


def _columns(rows: pa.Table, names: list[str] | None) -> pa.Table:
    return rows if names is None else rows.select(names)


def _differ(gone: pa.Table, came: pa.Table) -> pa.ChunkedArray:
    """Returns where the rows of two tables with equal keys are not the same. NULL equals NULL."""
    found = None
    for a, b in zip(gone.columns, came.columns, strict=True):
        other = pc.fill_null(pc.not_equal(a, b), True)
        differs = pc.and_not(other, pc.and_(pc.is_null(a), pc.is_null(b)))
        found = differs if found is None else pc.or_(found, differs)
    return found


def _scans(node: Node, each: bool = True) -> list[tuple[ScanNode, bool]] | None:
    """Returns the tables below an operator, and whether the rows above are those of each of its rows together; None if
    an operator keeps state.
    """
    match node:
        case ScanNode():
            return [(node, each)]
        case StepNode(child=child):
            return _scans(child, each)
        case JoinNode(kind, left, right, single=single):
            found = _scans(left, each and not single), _scans(right, each and kind == "inner" and not single)
            return None if None in found else [*(found[0] or ()), *(found[1] or ())]
        case _:
            return None
