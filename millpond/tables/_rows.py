"""Records out of the cells of a block, by functions made for a schema.

A function is one dict display with an expression for each column over the raw cells: about 40 ns a cell, where an
Arrow scalar costs 300 and more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from millpond.tables._columns import Coded, ColumnStore

Row = dict[str, Any]
MakeRow = Callable[[Sequence[Any], Sequence[Any]], Callable[[int], Row]]

DAYS = date(1970, 1, 1).toordinal()
EPOCH = datetime(1970, 1, 1)
WIDE = Context(prec=80)
_WORD = (1 << 64) - 1


def row_maker(names: Sequence[str], stores: Sequence[ColumnStore]) -> MakeRow:
    """A function from the cells of a block, and what tells which of them are not NULL (None where all are not), to
    the function that reads a row of it."""
    everything = range(len(stores))
    cells = [_cell(store, at) for at, store in enumerate(stores)]
    or_null = [
        f"(None if v{at} is not None and not v{at}[i] else {cells[at]})"
        if stores[at].nulls_apart
        else cells[at]
        for at in everything
    ]
    code = f"""
def make_row(cells, valid):
    [{", ".join(f"c{at}" for at in everything)}] = cells
    [{", ".join(f"v{at}" for at in everything)}] = valid
    if not any(flags is not None for flags in valid):
        return lambda i: {{{_pairs(names, cells)}}}
    return lambda i: {{{_pairs(names, or_null)}}}
"""
    scope: dict[str, Any] = {
        "_date": date.fromordinal,
        "_delta": timedelta,
        "_EPOCH": EPOCH,
        "_EPOCH_UTC": EPOCH.replace(tzinfo=UTC),
        "_decimal": Decimal,
        "_scaled": WIDE.scaleb,
    }
    for at, store in enumerate(stores):
        if isinstance(store, Coded):
            scope |= {f"t{at}": store.texts.values, f"r{at}": store.texts.read}
    exec(code, scope)
    made: MakeRow = scope["make_row"]
    return made


def _pairs(names: Sequence[str], cells: Sequence[str]) -> str:
    return ", ".join(f"{name!r}: {cell}" for name, cell in zip(names, cells, strict=True))


def _cell(store: ColumnStore, at: int) -> str:
    """The expression for a cell that is not NULL."""
    t, dtype, raw = pa.types, store.dtype, f"c{at}[i]"
    if t.is_string(dtype):
        return f"(x if (x := t{at}[{raw}]) is not ... else r{at}({raw}))"
    if t.is_date(dtype):
        return f"_date({raw} + {DAYS})"
    if t.is_timestamp(dtype):
        return f"({'_EPOCH' if dtype.tz is None else '_EPOCH_UTC'} + _delta(0, 0, {raw}))"
    if t.is_duration(dtype):
        return f"_delta(0, 0, {raw})"
    if t.is_decimal(dtype):
        whole = raw if store.words == 1 else f"(c{at}[i + i + 1] << 64 | c{at}[i + i] & {_WORD})"
        return f"_scaled(_decimal({whole}), {-dtype.scale})"
    return raw
