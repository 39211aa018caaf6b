"""Tests of a lookup as functions over the cells of a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from millpond.lookup import Compare, Either, Every, Holds, IsNull, OneOf, Test, columns_of, givens_of
from millpond.tables._columns import ColumnStore
from millpond.tables._rows import MakeReader, compile_reader
from millpond.types import Schema

_PYTHON = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_NEGATED = {">": "<=", ">=": "<"}


def compile_test(
    test: Test, schema: Schema, stores: Sequence[ColumnStore], names: Mapping[int, str]
) -> MakeReader:
    """For a block, the function of a row and of the test's values, in order, that tells whether the row passes.
    ``names`` are the values' names by their id."""
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

    def text(self, test: Test) -> str:
        match test:
            case Every(parts):
                return f"({' and '.join(self.text(p) for p in parts)})"
            case Either(parts):
                return f"({' or '.join(self.text(p) for p in parts)})"
            case IsNull(column, negated):
                return f"({self._cells[column][0]} is {'not ' if negated else ''}None)"
            case Holds(column, wanted):
                return f"({self._cells[column][0]} is {wanted})"
            case Compare(column, operator, value):
                return self._of(
                    column, self._compared(operator, self._names[id(value)], self._is_float(column))
                )
            case OneOf(column, values, negated):
                listed = "".join(f"{self._names[id(v)]}, " for v in values)
                return self._of(column, f"y {'not ' if negated else ''}in ({listed})")

    def _of(self, column: str, condition: str) -> str:
        """A condition on ``y``, the value of the column; NULL does not pass."""
        cell, nullable = self._cells[column]
        if nullable:
            return f"((y := {cell}) is not None and {condition})"
        return f"({condition.replace('y', f'(y := {cell})', 1)})"

    def _compared(self, operator: str, value: str, is_float: bool) -> str:
        # NaN is greater than all numbers.
        if is_float and operator in _NEGATED:
            return f"not y {_NEGATED[operator]} {value}"
        return f"y {_PYTHON[operator]} {value}"
