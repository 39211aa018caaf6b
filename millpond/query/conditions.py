"""Compiles conditions and assignments, once for many uses, and finds the rows of a condition."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

from millpond.changes import ROW
from millpond.errors import InvalidRecord
from millpond.lookup import RowFunction
from millpond.predicates import Predicate, conjuncts, equalities
from millpond.query.evaluate import Evaluator
from millpond.records import to_arrow
from millpond.sql.catalog import Relation
from millpond.sql.filters import Filter, parse_assignments, parse_filter, resolve_filter
from millpond.sql.fold import identity_columns
from millpond.sql.keyed_statements import assigned_cells
from millpond.sql.resolve import Resolved
from millpond.sql.rowwise import row_function
from millpond.tables.base import Snapshot
from millpond.types import Column, Schema

Rows = Callable[[pa.Table], pa.Table]

_KEPT = 256
# A fast path without the parser, for conditions by key: only what cannot mean anything else.
_AND = re.compile(r"\s+AND\s+", re.IGNORECASE)
_EQUALITY = re.compile(r"\s*(?P<name>[^\W\d]\w*)\s*=\s*(?:(?P<number>-?\d{1,18})|'(?P<text>[^'\\]*)')\s*")


class Condition:
    """Represents a compiled condition on the rows of one table: ``table.compile_condition("age > 65")``."""

    def __init__(self, relation: Relation, text: str, evaluator: Evaluator):
        self.text = text
        self._relation = relation
        self._evaluator = evaluator
        equal = keys_in(text, relation.schema)
        self.equal: Mapping[str, Any] = _indexed(self.filter.reading.predicate) if equal is None else equal
        """Columns that must equal a value, which an index can find."""
        self.exact = equal is not None or self._asks_only(self.equal)
        """Whether it consists of equalities only."""

    @cached_property
    def predicate(self) -> Predicate | None:
        """Returns what an index or a database can search by itself."""
        return self.filter.reading.predicate

    def _asks_only(self, equal: Mapping[str, Any]) -> bool:
        predicate, whole = self.filter.reading
        return whole and len(equal) == len(conjuncts(predicate))

    @cached_property
    def filter(self) -> Filter:
        """Returns the condition, parsed and checked."""
        return parse_filter(self._relation, self.text)

    @cached_property
    def _plain(self) -> Rows:
        return rows_of(self._evaluator, resolve_filter(self._relation, self.filter))

    @cached_property
    def _numbered(self) -> Rows:
        return rows_of(self._evaluator, resolve_filter(with_numbers(self._relation), self.filter))

    @property
    def way(self) -> tuple[str, str]:
        """Returns which engine evaluates it, and why that one."""
        return self._evaluator.way(resolve_filter(self._relation, self.filter))

    @property
    def asks_spark(self) -> bool:
        """Returns whether only Spark can evaluate it."""
        return self.way[0] == "spark"

    def rows(self, table: pa.Table) -> pa.Table:
        """Returns those rows of the table for which the condition holds; they may have their numbers."""
        return (self._numbered if ROW in table.column_names else self._plain)(table)

    def is_of(self, relation: Relation) -> bool:
        """Returns whether it was compiled for the table with these columns."""
        return self._relation is relation

    def __repr__(self) -> str:
        return f"<Condition {self.text}>"


class UpdateSet:
    """Represents the compiled assignments of an update: ``table.compile_update_set("price = price * 1.1")``.

    Values of a mapping are used as they are; a text may contain any expression.
    """

    def __init__(self, relation: Relation, changes: str | Mapping[str, Any], evaluator: Evaluator, what: str):
        self.relation = relation
        self.changes = changes
        self._identity = [c.name for c in identity_columns(relation)]
        self._names = list(relation.schema.names)
        self.single: RowFunction | None = None
        """Computes the change of one record, if that needs no engine and does not change the key."""
        self._found: Rows | None = None
        self._constants: pa.Table | None = None
        if isinstance(changes, str):
            query = parse_assignments(relation, changes)
            self.text = changes
            self._found = rows_of(evaluator, query)
            cells = assigned_cells(relation, query)
            if evaluator.path == "auto" and not set(cells) & set(relation.schema.key):
                self.single = row_function(cells, relation.schema)
        else:
            self.text = ", ".join(f"{name} = {value!r}" for name, value in changes.items())
            self._constants = to_arrow(part_of(relation.schema, changes), [changes], what=what)

    def apply(self, rows: pa.Table) -> pa.Table:
        """Returns what identifies each row, and the changed row."""
        if self._found is not None:
            return self._found(rows)
        assert self._constants is not None
        nothing = pa.array([0] * rows.num_rows, pa.int8())
        found = [rows.column(name) for name in self._identity]
        for name in self._names:
            constant = name in self._constants.column_names
            found.append(self._constants.column(name).take(nothing) if constant else rows.column(name))
        return pa.table(found, names=[*self._identity, *self._names])

    def __repr__(self) -> str:
        return f"<UpdateSet {self.text}>"


class Compiler:
    """Compiles for one table and caches the last few hundred texts."""

    def __init__(self, relation: Relation, evaluator: Evaluator):
        self.relation = relation
        self.evaluator = evaluator
        self.what = f'table "{relation.name}"'
        self._conditions: dict[str, Condition] = {}
        self._sets: dict[str, UpdateSet] = {}

    def condition(self, given: str | Condition) -> Condition:
        if isinstance(given, Condition):
            # The table may have other columns since it was compiled.
            return given if given.is_of(self.relation) else self.condition(given.text)
        found = self._conditions.get(given)
        if found is None:
            found = Condition(self.relation, given, self.evaluator)
            _keep(self._conditions, given, found)
        return found

    def update_set(self, given: str | Mapping[str, Any] | UpdateSet) -> UpdateSet:
        if isinstance(given, UpdateSet):
            return given if given.relation is self.relation else self.update_set(given.changes)
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
        """Returns the rows of the view under the condition and with these values, with their numbers if ``rows``. Uses
        an index for equal values; None finds NULL.
        """
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
        """Returns rows of the view that include all that match the condition."""
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


def keys_in(text: str, schema: Schema) -> dict[str, Any] | None:
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


def _indexed(predicate: Predicate | None) -> dict[str, Any]:
    """Returns the columns that must equal a value, of the types that an index compares as SQL does."""
    return {
        name: value for name, value in equalities(predicate).items() if type(value) in (int, str, Decimal)
    }


def rows_of(evaluator: Evaluator, query: Resolved) -> Rows:
    """Returns a function that evaluates a query over one table, for any rows of it."""
    answer, view = evaluator.answers(query), query.inputs[0].view
    return lambda rows: answer({view: rows})


def part_of(schema: Schema, names: Mapping[str, Any]) -> Schema:
    """Returns the columns of those names, without a key; unknown ones are left to ``to_arrow`` to report."""
    known = [c for n in names if (c := schema.find(n)) is not None]
    if len(known) != len(names):
        known = list(schema.columns)
    return Schema(tuple(Column(c.name, c.type) for c in known))


def with_numbers(relation: Relation) -> Relation:
    """Returns the relation with the row numbers after its columns."""
    columns = (*relation.schema.columns, Column(ROW, pa.int64()))
    return Relation(relation.name, relation.kind, Schema(columns))


def _keep(kept: dict[str, Any], text: str, value: Any) -> None:
    """Caches a text. Threads may race here: at worst a text is compiled twice."""
    if len(kept) >= _KEPT:
        for old in list(kept)[: _KEPT // 2]:
            kept.pop(old, None)
    kept[text] = value
