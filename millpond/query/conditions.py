"""Conditions and assignments, compiled once and used often, and the rows that a condition finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millpond.changes import ROW
from millpond.query.evaluate import Evaluator
from millpond.records import to_arrow
from millpond.sql.catalog import Relation
from millpond.sql.filters import (
    Assignments,
    Filter,
    parse_assignments,
    parse_filter,
    resolve_assignments,
    resolve_filter,
)
from millpond.sql.resolve import Resolved
from millpond.tables.base import Snapshot
from millpond.types import Column, Schema

_OLD = "__old_"
_KEPT = 256


class Condition:
    """A condition on the rows of one table, compiled: ``table.compile_condition("age > 65")``."""

    def __init__(self, relation: Relation, text: str, evaluator: Evaluator):
        self.text = text
        self.filter: Filter = parse_filter(relation, text)
        self._evaluator = evaluator
        self._plain = resolve_filter(relation, self.filter)
        self._numbered: Resolved | None = None
        if not relation.schema.key:
            self._numbered = resolve_filter(with_numbers(relation), self.filter)

    def rows(self, table: pa.Table) -> pa.Table:
        """Those rows of the table for which the condition holds; they may have their numbers."""
        query = self._plain
        if self._numbered is not None and table.num_columns > len(query.schema):
            query = self._numbered
        return self._evaluator.answer(query, {query.inputs[0].view: table})

    def __repr__(self) -> str:
        return f"<Condition {self.text}>"


class UpdateSet:
    """What an update sets, compiled: ``table.compile_update_set("price = price * 1.1")``.

    From a mapping the values are taken as they are; in a text every expression may stand.
    """

    def __init__(self, relation: Relation, changes: str | Mapping[str, Any], evaluator: Evaluator, what: str):
        self._key = tuple(c.name for k in relation.schema.key if (c := relation.schema.find(k)))
        self._evaluator = evaluator
        self._query: Resolved | None = None
        self._constants: pa.Table | None = None
        names: tuple[str, ...]
        if isinstance(changes, str):
            assignments: Assignments = parse_assignments(relation, changes)
            self.text = changes
            names = tuple(assignments.values)
            beside = {_OLD + k: k for k in self._key} if self._key else {ROW: ROW}
            seen = relation if self._key else with_numbers(relation)
            self._query = resolve_assignments(relation, assignments, beside=beside, seen=seen)
        else:
            self.text = ", ".join(f"{name} = {value!r}" for name, value in changes.items())
            self._constants = to_arrow(part_of(relation.schema, changes), [changes], what=what)
            names = tuple(self._constants.column_names)
        self.moves_key = bool(set(names) & set(self._key))

    def apply(self, rows: pa.Table) -> pa.Table:
        """The rows as they become; rows with numbers keep them."""
        if self._query is not None:
            changed = self._evaluator.answer(self._query, {self._query.inputs[0].view: rows})
            return changed.drop_columns([_OLD + k for k in self._key]) if self._key else changed
        assert self._constants is not None
        nothing = pa.array([0] * rows.num_rows, pa.int8())
        for field in self._constants.schema:
            column = self._constants.column(field.name).take(nothing)
            rows = rows.set_column(rows.schema.get_field_index(field.name), field, column)
        return rows

    def __repr__(self) -> str:
        return f"<UpdateSet {self.text}>"


class Compiler:
    """Compiles for one table and keeps the last few hundred texts."""

    def __init__(self, relation: Relation, evaluator: Evaluator):
        self.relation = relation
        self.evaluator = evaluator
        self.what = f'table "{relation.name}"'
        self._conditions: dict[str, Condition] = {}
        self._sets: dict[str, UpdateSet] = {}

    def condition(self, given: str | Condition) -> Condition:
        if isinstance(given, Condition):
            return given
        found = self._conditions.get(given)
        if found is None:
            found = Condition(self.relation, given, self.evaluator)
            _keep(self._conditions, given, found)
        return found

    def update_set(self, given: str | Mapping[str, Any] | UpdateSet) -> UpdateSet:
        if isinstance(given, UpdateSet):
            return given
        if not isinstance(given, str):
            return UpdateSet(self.relation, given, self.evaluator, self.what)
        found = self._sets.get(given)
        if found is None:
            found = UpdateSet(self.relation, given, self.evaluator, self.what)
            _keep(self._sets, given, found)
        return found

    def matching(
        self, view: Snapshot, condition: Condition | None, equal: Mapping[str, Any], *, rows: bool = False
    ) -> pa.Table:
        """The rows of the view under the condition and with these values, with their numbers if ``rows``. Equal
        values are found by an index; None finds NULL."""
        wanted = dict(equal)
        if condition is not None:
            # A column that both name is looked up by one and compared by the other.
            wanted = {**condition.filter.equal, **wanted}
        table = self._narrowed(view, wanted, bool(equal), rows)
        if condition is None or (condition.filter.exact and not set(condition.filter.equal) & set(equal)):
            return table
        return condition.rows(table)

    def narrowed(self, view: Snapshot, condition: Condition | None) -> pa.Table:
        """Rows of the view among which are all that the condition finds."""
        return self._narrowed(view, {} if condition is None else condition.filter.equal, False, False)

    def _narrowed(self, view: Snapshot, wanted: Mapping[str, Any], nulls: bool, rows: bool) -> pa.Table:
        if not wanted:
            return view.scan(rows=rows)
        keys = to_arrow(part_of(self.relation.schema, wanted), [wanted], what=self.what)
        return view.get(keys.column_names, keys, nulls=nulls, rows=rows)


def part_of(schema: Schema, names: Mapping[str, Any]) -> Schema:
    """The columns of those names, without a key; unknown ones are left to ``to_arrow`` to report."""
    known = [c for n in names if (c := schema.find(n)) is not None]
    if len(known) != len(names):
        known = list(schema.columns)
    return Schema(tuple(Column(c.name, c.type) for c in known))


def with_numbers(relation: Relation) -> Relation:
    """The relation with the row numbers behind its columns."""
    columns = (*relation.schema.columns, Column(ROW, pa.int64()))
    return Relation(relation.name, relation.kind, Schema(columns))


def _keep(kept: dict[str, Any], text: str, value: Any) -> None:
    """Threads may race here: at worst a text is compiled twice."""
    if len(kept) >= _KEPT:
        for old in list(kept)[: _KEPT // 2]:
            kept.pop(old, None)
    kept[text] = value
