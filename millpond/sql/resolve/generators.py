"""Resolves functions that return rows, as inputs of FROM: `explode(…)`, `inline(…)`, `stack(…)` and similar."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.sql.calls import arguments_of, called
from millpond.sql.functions import Generator, by_name

Columns = list[tuple[str, pa.DataType | None]]
TypeOf = Callable[[exp.Expr], "pa.DataType | None"]


def _generator(node: exp.Expr) -> Generator | None:
    row = by_name().get(called(node) or "")
    return row if isinstance(row, Generator) and row.columns is not None else None


def generates(node: exp.Expr) -> bool:
    """Returns whether a call returns rows whose columns are known beforehand."""
    return _generator(node) is not None


def generated(call: exp.Expr, type_of: TypeOf) -> Columns | None:
    """Returns the columns that a resolved call returns, with their types as far as known; None if its arguments do not
    fit.
    """
    row = _generator(call)
    assert row is not None and row.columns is not None
    found: Columns | None = row.columns(arguments_of(call), type_of)
    return found


def exploded(*, place: bool) -> Callable[[Sequence[exp.Expr], TypeOf], Columns | None]:
    """Returns the columns of EXPLODE and POSEXPLODE: the elements of an array, or the keys and values of a map."""

    def columns(given: Sequence[exp.Expr], type_of: TypeOf) -> Columns | None:
        dtype = type_of(given[0])
        first: Columns = [("pos", pa.int32())] if place else []
        if dtype is not None and pa.types.is_map(dtype):
            return [*first, ("key", dtype.key_type), ("value", dtype.item_type)]
        return [*first, ("col", dtype.value_type)] if dtype is not None and pa.types.is_list(dtype) else None

    return columns


def inlined(given: Sequence[exp.Expr], type_of: TypeOf) -> Columns | None:
    dtype = type_of(given[0])
    if dtype is None or not pa.types.is_list(dtype) or not pa.types.is_struct(dtype.value_type):
        return None
    return [(field.name, field.type) for field in dtype.value_type]


def tupled(given: Sequence[exp.Expr], type_of: TypeOf) -> Columns | None:
    """Returns the columns of JSON_TUPLE: a text for each key."""
    return [(f"c{i}", pa.string()) for i in range(len(given) - 1)]


def stacked(given: Sequence[exp.Expr], type_of: TypeOf) -> Columns | None:
    """Returns the columns of STACK, if the number of rows is a literal."""
    count = given[0].name if isinstance(given[0], exp.Literal) and not given[0].is_string else ""
    if not count.isdigit() or not int(count):
        return None
    return [(f"col{i}", None) for i in range(-(-(len(given) - 1) // int(count)))]
