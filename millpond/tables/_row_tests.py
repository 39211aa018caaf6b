"""Compiles the condition of a lookup to a function over the cells of a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.predicates import All, Any_, Compare, Given, IsNull, OneOf, Predicate, columns_of, givens_of
from millpond.tables._columns import ColumnStore
from millpond.tables._rows import MakeReader, compile_reader
from millpond.types import Schema

_PYTHON = {"=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_NEGATED = {">": "<=", ">=": "<"}


def compile_test(
    test: Predicate, schema: Schema, stores: Sequence[ColumnStore], names: Mapping[int, str]
) -> MakeReader:
    """Returns, for a block, the function of a row and of the test's values, in order, that says whether the row passes.
    ``names`` are the values' names by their id.
    """
    columns = columns_of(test)
    places = [schema.names.index(column) for column in columns]

    def write(cells: Sequence[str], nullable: Sequence[bool]) -> str:
        cell = dict(zip(columns, zip(cells, nullable, strict=True), strict=True))
        floats = {c.name for c in schema if pa.types.is_floating(c.type)}
        return _Writer(cell, names, floats.__contains__).text(test)

    return compile_reader(stores, places, write, ", ".join(["i", *(names[id(g)] for g in givens_of(test))]))


class _Writer:
    def __init__(
        self,
        cells: Mapping[str, tuple[str, bool]],
        names: Mapping[int, str],
        is_float: Callable[[str], bool],
    ):
        self._cells = cells
        self._names = names
        self._is_float = is_float

    def text(self, test: Predicate) -> str:
        match test:
            case All(parts):
                return f"({' and '.join(self.text(p) for p in parts)})"
            case Any_(parts):
                return f"({' or '.join(self.text(p) for p in parts)})"
            case IsNull(column, is_null):
                return f"({self._cells[column][0]} is {'' if is_null else 'not '}None)"
            case Compare(column, "=" | "!=" as operator, bool(value)):
                return f"({self._cells[column][0]} is {value == (operator == '=')})"
            case Compare(column, operator, value):
                return self._of(column, self._compared(operator, self._value(value), self._is_float(column)))
            case OneOf(column, values, negated):
                listed = "".join(f"{self._value(v)}, " for v in values)
                return self._of(column, f"y {'not ' if negated else ''}in ({listed})")

    def _value(self, value: Any) -> str:
        """Returns the expression of a value of the run, or TRUE or FALSE, which no statement leaves open."""
        return self._names[id(value)] if isinstance(value, Given) else repr(value)

    def _of(self, column: str, condition: str) -> str:
        """Returns a condition on ``y``, the value of the column; NULL does not pass."""
        cell, nullable = self._cells[column]
        if nullable:
            return f"((y := {cell}) is not None and {condition})"
        return f"({condition.replace('y', f'(y := {cell})', 1)})"

    def _compared(self, operator: str, value: str, is_float: bool) -> str:
        # NaN is greater than all numbers.
        if is_float and operator in _NEGATED:
            return f"not y {_NEGATED[operator]} {value}"
        return f"y {_PYTHON[operator]} {value}"
