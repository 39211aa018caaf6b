"""Compiles conditions and assignments, once for many uses, and finds the rows of a condition."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from millpond.changes import ROW
from millpond.errors import InvalidRecord
from millpond.lookup import RowFunction
from millpond.predicates import Predicate
from millpond.query.evaluate import Evaluator
from millpond.records import to_arrow
from millpond.sql.catalog import Relation
from millpond.sql.filters import (
    Assignments,
    Filter,
    assigned_values,
    parse_assignments,
    parse_filter,
    resolve_assignments,
    resolve_filter,
)
from millpond.sql.pushdown import predicate_of
from millpond.sql.resolve import Resolved
from millpond.sql.rowwise import row_function
from millpond.tables.base import Snapshot
from millpond.types import Column, Schema

Rows = Callable[[pa.Table], pa.Table]

_OLD = "__old_"
_KEPT = 256
# A short cut past the parser, for conditions by key: only what cannot mean anything else.
_AND = re.compile(r"\s+AND\s+", re.IGNORECASE)
_EQUALITY = re.compile(r"\s*(?P<name>[^\W\d]\w*)\s*=\s*(?:(?P<number>-?\d{1,18})|'(?P<text>[^'\\]*)')\s*")


class Condition:
    """A condition on the rows of one table, compiled: ``table.compile_condition("age > 65")``."""

    def __init__(self, relation: Relation, text: str, evaluator: Evaluator):
        self.text = text
        self._relation = relation
        self._evaluator = evaluator
        equal = equalities(text, relation.schema)
        self.exact = equal is not None or self.filter.exact
        """Whether equal values are all that it asks for."""
        self.equal: Mapping[str, Any] = self.filter.equal if equal is None else equal
        """Columns that it wants to equal a value, which an index can find."""

    @cached_property
    def filter(self) -> Filter:
        """The condition, parsed and checked."""
        return parse_filter(self._relation, self.text)

    @cached_property
    def predicate(self) -> Predicate | None:
        """What a backend can look for by itself."""
        return predicate_of(self.filter.tree, self._relation.schema)

    @cached_property
    def _plain(self) -> Rows:
        return rows_of(self._evaluator, resolve_filter(self._relation, self.filter))

    @cached_property
    def _numbered(self) -> Rows:
        return rows_of(self._evaluator, resolve_filter(with_numbers(self._relation), self.filter))

    @property
    def asks_spark(self) -> bool:
        """Whether only Spark can tell for which rows it holds."""
        return self._evaluator.way(resolve_filter(self._relation, self.filter))[0] == "spark"

    def rows(self, table: pa.Table) -> pa.Table:
        """Those rows of the table for which the condition holds; they may have their numbers."""
        numbered = table.num_columns > len(self._relation.schema)
        return (self._numbered if numbered else self._plain)(table)

    def __repr__(self) -> str:
        return f"<Condition {self.text}>"


class UpdateSet:
    """The assignments of an update, compiled: ``table.compile_update_set("price = price * 1.1")``.

    From a mapping the values are taken as they are; in a text every expression may stand.
    """

    def __init__(self, relation: Relation, changes: str | Mapping[str, Any], evaluator: Evaluator, what: str):
        self._key = tuple(c.name for k in relation.schema.key if (c := relation.schema.find(k)))
        self.single: RowFunction | None = None
        """What it makes of one record, where that needs no engine."""
        self._changed: Rows | None = None
        self._constants: pa.Table | None = None
        names: tuple[str, ...]
        if isinstance(changes, str):
            assignments: Assignments = parse_assignments(relation, changes)
            self.text = changes
            names = tuple(assignments.values)
            beside = {_OLD + k: k for k in self._key} if self._key else {ROW: ROW}
            seen = relation if self._key else with_numbers(relation)
            query = resolve_assignments(relation, assignments, beside=beside, seen=seen)
            self._changed = rows_of(evaluator, query)
            if evaluator.path == "auto":
                self.single = row_function(assigned_values(query, names), relation.schema)
        else:
            self.text = ", ".join(f"{name} = {value!r}" for name, value in changes.items())
            self._constants = to_arrow(part_of(relation.schema, changes), [changes], what=what)
            names = tuple(self._constants.column_names)
        self.moves_key = bool(set(names) & set(self._key))

    def apply(self, rows: pa.Table) -> pa.Table:
        """Returns the rows as they become; rows with numbers keep them."""
        if self._changed is not None:
            changed = self._changed(rows)
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
        """Returns the rows of the view under the condition and with these values, with their numbers if ``rows``.
        Equal values are found by an index; None finds NULL."""
        given = self._spelled(equal)
        table = self._narrowed(view, given, condition, rows)
        if condition is None or (condition.exact and condition.equal.keys().isdisjoint(given)):
            return table
        return condition.rows(table)

    def _spelled(self, equal: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values by the names that the table has for its columns."""
        found: dict[str, Any] = {}
        for name, value in equal.items():
            column = self.relation.schema.find(name)
            known = name if column is None else column.name
            if known in found:
                raise InvalidRecord(f'"{known}" is given twice for {self.what}', field=known)
            found[known] = value
        return found

    def narrowed(self, view: Snapshot, condition: Condition | None) -> pa.Table:
        """Rows of the view among which are all that the condition finds."""
        return self._narrowed(view, {}, condition, False)

    def _narrowed(
        self, view: Snapshot, given: Mapping[str, Any], condition: Condition | None, rows: bool
    ) -> pa.Table:
        wanted = {} if condition is None else condition.equal
        if not given and not wanted:
            where = None if condition is None else condition.predicate
            return view.scan(rows=rows) if where is None else view.filtered(where, rows=rows)
        columns = {}
        if given:
            keys = to_arrow(part_of(self.relation.schema, given), [given], what=self.what)
            columns = {name: keys.column(name) for name in keys.column_names}
        # A column that both name is looked up by one and compared by the other.
        columns |= {name: pa.array([v]) for name, v in wanted.items() if name not in columns}
        nulls = any(value is None for value in given.values())
        return view.get(list(columns), pa.table(columns), nulls=nulls, rows=rows)


def equalities(text: str, schema: Schema) -> dict[str, Any] | None:
    """Returns the values of ``id = 7`` or ``a = 1 AND b = 'x'``, as a parser would find them; None for any other
    condition."""
    equal: dict[str, Any] = {}
    for part in _AND.split(text):
        found = _EQUALITY.fullmatch(part)
        column = None if found is None else schema.find(found["name"])
        if found is None or column is None or column.type is None or column.name in equal:
            return None
        number, t = found["number"], pa.types
        if (
            number is not None
            and t.is_integer(column.type)
            and int(number).bit_length() < column.type.bit_width
        ):
            equal[column.name] = int(number)
        elif number is None and t.is_string(column.type):
            equal[column.name] = found["text"]
        else:
            return None
    return equal


def rows_of(evaluator: Evaluator, query: Resolved) -> Rows:
    """A function that answers a query over one table, for any rows of it."""
    answer, view = evaluator.answers(query), query.inputs[0].view
    return lambda rows: answer({view: rows})


def part_of(schema: Schema, names: Mapping[str, Any]) -> Schema:
    """Returns the columns of those names, without a key; unknown ones are left to ``to_arrow`` to report."""
    known = [c for n in names if (c := schema.find(n)) is not None]
    if len(known) != len(names):
        known = list(schema.columns)
    return Schema(tuple(Column(c.name, c.type) for c in known))


def with_numbers(relation: Relation) -> Relation:
    """Returns the relation with the row numbers behind its columns."""
    columns = (*relation.schema.columns, Column(ROW, pa.int64()))
    return Relation(relation.name, relation.kind, Schema(columns))


def _keep(kept: dict[str, Any], text: str, value: Any) -> None:
    """Threads may race here: at worst a text is compiled twice."""
    if len(kept) >= _KEPT:
        for old in list(kept)[: _KEPT // 2]:
            kept.pop(old, None)
    kept[text] = value
