"""Resolves windows of OVER: expands their names, and checks Spark's rules for frames and orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from sqlglot import exp

from millpond.errors import SqlError, TypeMismatch, did_you_mean
from millpond.sql.functions import WindowFunction, by_node
from millpond.sql.typing import type_of
from millpond.sql.typing.coercion import DATE, is_numeric
from millpond.sql.typing.functions import integer_value
from millpond.sql.typing.literals import interval_units
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, type_name

_PARTS = ("partition_by", "order", "spec")
_MOST = 2**31 - 1
_TIMES = (DATE, TIMESTAMP, TIMESTAMP_NTZ)


def name_windows(select: exp.Select, known: Mapping[str, exp.Window]) -> Iterator[tuple[SqlError, exp.Expr]]:
    """Expands every ``OVER w``, by the windows that the SELECT names. Yields what is wrong, and where."""
    for node in _own(select):
        if isinstance(node, exp.Window) and node.args.get("alias") is not None:
            yield from _write_out(node, known)


def named_windows(select: exp.Select) -> tuple[dict[str, exp.Window], list[tuple[SqlError, exp.Expr]]]:
    """Returns the windows that a SELECT names, each expanded; one may be another name for another."""
    known: dict[str, exp.Window] = {}
    errors: list[tuple[SqlError, exp.Expr]] = []
    for window in select.args.get("windows") or ():
        if not isinstance(window, exp.Window):
            continue
        if window.name.lower() in known:
            errors.append((SqlError(f'window "{window.name}" is named twice'), window))
        known[window.name.lower()] = window
    for window in known.values():
        seen = {window.name.lower()}
        while (alias := window.args.get("alias")) is not None and alias.name.lower() in known:
            if alias.name.lower() in seen:
                errors.append((SqlError(f'window "{alias.name}" is another name for itself'), window))
                window.set("alias", None)
                break
            seen.add(alias.name.lower())
            other = known[alias.name.lower()]
            _copy(other, window)
            window.set("alias", other.args.get("alias"))
        errors += _write_out(window, known)
    return known, errors


def _write_out(node: exp.Window, known: Mapping[str, exp.Window]) -> Iterator[tuple[SqlError, exp.Expr]]:
    alias = node.args.get("alias")
    if alias is None:
        return
    found = known.get(alias.name.lower())
    if found is None:
        hint = did_you_mean(alias.name, list(known), f"name it: WINDOW {alias.name} AS (ORDER BY …)")
        yield SqlError(f'window "{alias.name}" is not known', hint=hint), node
    elif any(node.args.get(part) for part in _PARTS):
        yield (
            SqlError(
                f'window "{alias.name}" cannot be given more than it has',
                hint="write the whole window out: OVER (PARTITION BY … ORDER BY …)",
            ),
            node,
        )
    else:
        _copy(found, node)
    node.set("alias", None)


def _copy(window: exp.Window, to: exp.Window) -> None:
    for part in _PARTS:
        value = window.args.get(part)
        to.set(part, [v.copy() for v in value] if isinstance(value, list) else value and value.copy())


def _own(node: exp.Expr) -> Iterator[exp.Expr]:
    for child in node.iter_expressions():
        if not isinstance(child, exp.Query):
            yield child
            yield from _own(child)


def check_window(node: exp.Window) -> Iterator[SqlError]:
    """Yields what is wrong with a function over a window; its columns are resolved."""
    function = node.this
    while isinstance(function, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        function = function.this
    order, spec = node.args.get("order"), node.args.get("spec")
    row = by_node().get(type(function))
    name = row.name.upper() if row is not None else _name(function)
    frame = row.frame if isinstance(row, WindowFunction) else "any"
    if frame != "any" and not order:
        yield SqlError(
            f"{name} needs an order: OVER (… ORDER BY …)", hint="without one it would number rows by chance"
        )
    nth = integer_value(function.args["offset"]) if isinstance(function, exp.NthValue) else None
    if nth is not None and nth < 1:
        yield SqlError(f"{name} counts rows from 1 on")
    if _is_of_all(function) and (order or spec is not None):
        hint = "OVER (PARTITION BY …)"
        shown = _name(function.this) if isinstance(function, exp.WithinGroup) else name
        yield SqlError(f"{shown} is of a whole partition: it takes no order and no frame", hint=hint)
        return
    if any(isinstance(function.args.get(k), exp.Distinct) for k in ("this", "expression")):
        yield SqlError(f"{name} with DISTINCT cannot stand before OVER", hint="aggregate in a subquery first")
    if spec is None:
        return
    if frame == "whole":
        yield SqlError(f"{name} looks at rows of the whole window: it takes no frame")
    elif frame == "counted" and not _is_default(spec):
        yield SqlError(f"{name} counts from the first row of the window: it takes no other frame")
    yield from _check_frame(spec, order.expressions if order is not None else [])


def _name(function: exp.Expr) -> str:
    return function.sql_name() if isinstance(function, exp.Func) else function.key.upper()


def _is_of_all(function: exp.Expr) -> bool:
    """Returns whether it reads the rows of its partition in an order of its own."""
    if isinstance(function, exp.WithinGroup):
        return isinstance(function.this, exp.PercentileCont | exp.PercentileDisc)
    if isinstance(function, exp.GroupConcat):
        return isinstance(function.this, exp.Order)
    return isinstance(function, exp.Median)


def _word(spec: exp.Expr, key: str) -> str:
    value = spec.args.get(key)
    return value.upper() if isinstance(value, str) else ""


def _is_default(spec: exp.Expr) -> bool:
    return (
        _word(spec, "kind") == "ROWS"
        and _word(spec, "start") == "UNBOUNDED"
        and _word(spec, "start_side") == "PRECEDING"
        and (_word(spec, "end") == "CURRENT ROW" or not spec.args.get("end"))
    )


def _check_frame(spec: exp.Expr, order: list[exp.Expr]) -> Iterator[SqlError]:
    if _word(spec, "kind") not in ("ROWS", "RANGE"):
        yield SqlError(f"a frame of {_word(spec, 'kind')} is not known", hint="frames are ROWS and RANGE")
    if spec.args.get("exclude"):
        yield SqlError("EXCLUDE in a frame is not known", hint="a frame has all rows between its bounds")
    if _word(spec, "start") == "UNBOUNDED" and _word(spec, "start_side") == "FOLLOWING":
        yield SqlError("a frame cannot begin behind the last row")
    if _word(spec, "end") == "UNBOUNDED" and _word(spec, "end_side") == "PRECEDING":
        yield SqlError("a frame cannot end before the first row")
    low, high = _bound(spec, "start"), _bound(spec, "end") if spec.args.get("end") else 0.0
    if low is not None and high is not None and low > high:
        yield SqlError("this frame ends before it begins", hint="BETWEEN the first bound AND the last")
    if _word(spec, "kind") != "RANGE":
        if any(n is not None and _MOST < abs(n) < float("inf") for n in (low, high)):
            yield SqlError("ROWS counts with INT: this bound is too large", hint="UNBOUNDED has no end")
        return
    values = [v for k in ("start", "end") if isinstance(v := spec.args.get(k), exp.Expr)]
    if not order and (values or "CURRENT ROW" in (_word(spec, "start"), _word(spec, "end"))):
        yield SqlError("RANGE needs an order: OVER (ORDER BY … RANGE …)")
    if not values or not order:
        return
    if len(order) != 1:
        yield SqlError("RANGE with a distance takes one column of ORDER BY", hint="ROWS counts rows instead")
        return
    dtype = type_of(order[0].this)
    if dtype is None:
        return
    for value in values:
        interval = interval_units(value) is not None
        days = dtype == DATE and _is_integer(value)
        if not ((dtype in _TIMES and interval) or days or (is_numeric(dtype) and not interval)):
            yield TypeMismatch(f"RANGE with this distance does not take an order of {type_name(dtype)}")


def _is_integer(value: exp.Expr) -> bool:
    dtype = type_of(value)
    return dtype is not None and bool(pa.types.is_integer(dtype))


def _bound(spec: exp.Expr, key: str) -> float | None:
    """Returns where a frame begins or ends, as a number of rows from the current one; None if unknown."""
    word, before = _word(spec, key), _word(spec, f"{key}_side") == "PRECEDING"
    if word == "CURRENT ROW":
        return 0.0
    if word == "UNBOUNDED":
        return float("-inf") if before else float("inf")
    value = spec.args.get(key)
    steps = integer_value(value) if isinstance(value, exp.Expr) else None
    return None if steps is None else float(-steps if before else steps)
