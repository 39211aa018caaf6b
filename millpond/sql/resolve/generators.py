"""Functions that give rows, as inputs of FROM: `explode(…)`, `inline(…)`, `stack(…)` and their like."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from millpond.sql.calls import arguments_of, called

Columns = list[tuple[str, pa.DataType | None]]
_EXPLODES = ("explode", "explode_outer", "posexplode", "posexplode_outer")
_INLINES = ("inline", "inline_outer")
GENERATORS = frozenset({*_EXPLODES, *_INLINES, "json_tuple", "stack"})


def generates(node: exp.Expr) -> bool:
    """Whether a call gives rows that can be told beforehand."""
    return called(node) in GENERATORS


def generated(call: exp.Expr, type_of: Callable[[exp.Expr], pa.DataType | None]) -> Columns | None:
    """The columns that a resolved call gives, as far as their types are known; None if its arguments do not fit."""
    name, given = called(call), arguments_of(call)
    if name == "json_tuple":
        return [(f"c{i}", pa.string()) for i in range(len(given) - 1)]
    if name == "stack":
        count = given[0].name if isinstance(given[0], exp.Literal) and not given[0].is_string else ""
        if not count.isdigit() or not int(count):
            return None
        return [(f"col{i}", None) for i in range(-(-(len(given) - 1) // int(count)))]
    dtype = type_of(given[0])
    if dtype is None:
        return None
    if name in _INLINES:
        if not pa.types.is_list(dtype) or not pa.types.is_struct(dtype.value_type):
            return None
        return [(field.name, field.type) for field in dtype.value_type]
    place: Columns = [("pos", pa.int32())] if name in _EXPLODES[2:] else []
    if pa.types.is_map(dtype):
        return [*place, ("key", dtype.key_type), ("value", dtype.item_type)]
    return [*place, ("col", dtype.value_type)] if pa.types.is_list(dtype) else None
