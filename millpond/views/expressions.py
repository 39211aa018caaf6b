"""Computes the outputs of operators: in Python for what is simple, else in one call of DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import eq, ge, gt, itemgetter, le, lt, ne
from typing import Any

import pyarrow as pa

from millpond.predicates import All, Any_, Compare, IsNull, OneOf, Predicate
from millpond.query.evaluate import Answer, Evaluator
from millpond.records.values import Unfit
from millpond.sql.incremental.nodes import IN, PLACE, Outputs, column_at
from millpond.sql.rowwise import computed_by_rows
from millpond.views.rows import Delta, Row, rows_of, table_of

Test = Callable[[Row], bool]
_OPERATORS = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


class OnlySpark(Exception):
    """Says that an operator cannot be computed in the process."""


class Computed:
    """Computes the outputs of rows."""

    def __init__(self, outputs: Outputs, types: Sequence[pa.DataType], evaluator: Evaluator):
        self._answer = answer_of(evaluator, outputs.query)
        self._types = (*types, pa.int64())
        self._names = (*(column_at(i) for i in range(len(types))), PLACE)
        self._made = [f"o{i}" for i in range(len(outputs.types))]
        self._schema = outputs.query.schema.arrow()
        self._test: Test | None = None
        self._function: Callable[[Row], Row] | None = None
        if not outputs.conditioned or outputs.condition is not None:
            self._test = _tested(outputs.condition)
            self._function = _function(outputs, self._names)

    def apply(self, delta: Delta) -> Delta:
        """Returns the outputs of the rows for which the condition holds."""
        if not delta:
            return []
        test, function = self._test, self._function
        if test is not None and function is not None:
            try:
                return [(function(row), weight) for row, weight in delta if test(row)]
            except Unfit:
                pass
        rows = table_of([(*row, at) for at, (row, _) in enumerate(delta)], self._names, self._types)
        found = self._answer({IN: rows}).cast(self._schema)
        weights = [delta[at][1] for at in found.column(PLACE).to_pylist()]
        return list(zip(rows_of(found, self._made), weights, strict=True))


def answer_of(evaluator: Evaluator, query: Any) -> Answer:
    """Returns the function that answers a query in the process. Raises OnlySpark."""
    answer = evaluator.in_process(query)
    if answer is None:
        raise OnlySpark
    return answer


def _function(outputs: Outputs, names: Sequence[str]) -> Callable[[Row], Row] | None:
    if None not in outputs.picks:
        return picker([p for p in outputs.picks if p is not None])
    wanted = [f"o{i}" for i in range(len(outputs.types))]
    compute = computed_by_rows(outputs.query, wanted)
    if compute is None:
        return None

    def function(row: Row) -> Row:
        found = compute(dict(zip(names, row, strict=False)))
        return tuple([found[name] for name in wanted])

    return function


def picker(places: Sequence[int]) -> Callable[[Row], Row]:
    """Returns a function that returns some columns of a row."""
    if len(places) == 1:
        only = places[0]
        return lambda row: (row[only],)
    return itemgetter(*places) if places else lambda row: ()


def _tested(condition: Predicate | None) -> Test:
    match condition:
        case None:
            return lambda row: True
        case All(parts):
            tests = [_tested(p) for p in parts]
            return lambda row: all(test(row) for test in tests)
        case Any_(parts):
            tests = [_tested(p) for p in parts]
            return lambda row: any(test(row) for test in tests)
        case IsNull(column, is_null):
            at = int(column[1:])
            return lambda row: (row[at] is None) is is_null
        case OneOf(column, values, negated):
            at, there = int(column[1:]), frozenset(values)
            return lambda row: row[at] is not None and (row[at] in there) is not negated
        case Compare(column, operator, value):
            at, compare = int(column[1:]), _OPERATORS[operator]
            return lambda row: row[at] is not None and compare(row[at], value)
