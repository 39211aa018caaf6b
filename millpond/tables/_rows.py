"""Builds records from the cells of a block, by functions generated for a schema.

A function is one dict display with an expression for each column over the raw cells: about 40 ns a cell, while an Arrow
scalar costs 300 and more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import lru_cache
from itertools import repeat
from types import CodeType
from typing import Any, cast

import pyarrow as pa

from millpond.digits import is_unscaled, without_zeros
from millpond.records.outgoing import far_time
from millpond.tables._columns import Coded, ColumnStore, Pieces

Row = dict[str, Any]
MakeReader = Callable[[Sequence[Any], Sequence[Any], Sequence[ColumnStore]], Callable[..., Any]]
MakeRows = Callable[[Sequence[Any], Sequence[Any]], list[Row]]

DAYS = date(1970, 1, 1).toordinal()
EPOCH = datetime(1970, 1, 1)
_LAST_DAY = date.max.toordinal()
_FIRST, _LAST = ((end - EPOCH) // timedelta(microseconds=1) for end in (datetime.min, datetime.max))
WIDE = Context(prec=80)
_WORD = (1 << 64) - 1


def row_maker(names: Sequence[str], stores: Sequence[ColumnStore]) -> MakeReader:
    """Returns a function from the cells of a block, the flags of those that are not NULL (None if all are not), and its
    stores, to the function that reads a row of it.
    """
    return compile_reader(stores, range(len(stores)), lambda cells, _: f"{{{_pairs(names, cells)}}}")


def rows_maker(names: Sequence[str], stores: Sequence[ColumnStore]) -> MakeRows | None:
    """Returns a function from the cells of rows, one list for each column, texts as they are, and the flags of those
    that are not NULL (None if all are not), to the records. None for types whose cells are not lists.
    """
    if not names or any(isinstance(s, Pieces) or s.words > 1 for s in stores):
        return None
    every = range(len(stores))
    plain = [f"c{at}" if isinstance(s, Coded) else _cell(s, f"c{at}", at) for at, s in enumerate(stores)]
    or_null = [
        f"({cell} if v{at} else None)" if stores[at].nulls_apart else cell for at, cell in enumerate(plain)
    ]
    cells, flags = ("".join(f"{letter}{at}, " for at in every) for letter in "cv")
    code = f"""
def make(cells, valid):
    if not any(valid):
        return [{{{_pairs(names, plain)}}} for {cells} in zip(*cells)]
    valid = [flags or repeat(True) for flags in valid]
    return [{{{_pairs(names, or_null)}}} for {cells}{flags} in zip(*cells, *valid)]
"""
    return cast(MakeRows, _run(code, stores, every)["make"])


def compile_reader(
    stores: Sequence[ColumnStore],
    columns: Sequence[int],
    write: Callable[[Sequence[str], Sequence[bool]], str],
    arguments: str = "i",
    *,
    times: bool = True,
) -> MakeReader:
    """Returns a function from the cells of a block, the flags of those that are not NULL, and the block's stores, to a
    function of ``arguments``, one of which is ``i``, the row. ``write`` makes its expression from one for the cell of
    each of the columns, and from whether it may be NULL. Without ``times`` dates and times are the stored numbers.
    """
    plain = (pa.types.is_date, pa.types.is_timestamp, pa.types.is_duration)
    cells = [
        _cell(stores[at], f"c{at}[i]", at)
        if times or not any(is_so(stores[at].dtype) for is_so in plain)
        else f"c{at}[i]"
        for at in columns
    ]
    texts = [at for at in columns if isinstance(stores[at], Coded)]
    or_null = [
        f"(None if v{at} is not None and not v{at}[i] else {cell})" if stores[at].nulls_apart else cell
        for at, cell in zip(columns, cells, strict=True)
    ]
    flags = "".join(f"v{at}, " for at in columns)
    code = f"""
def make(cells, valid, stores):
    {"; ".join(f"c{at}, v{at} = cells[{at}], valid[{at}]" for at in columns) or "pass"}
    {"; ".join(f"t{at}, r{at} = stores[{at}].texts.values, stores[{at}].texts.read" for at in texts) or "pass"}
    if not any([flags is not None for flags in ({flags})]):
        return lambda {arguments}: {write(cells, [not stores[at].nulls_apart for at in columns])}
    return lambda {arguments}: {write(or_null, [True] * len(cells))}
"""
    made: MakeReader = _run(code, stores, columns)["make"]
    return made


def _run(code: str, stores: Sequence[ColumnStore], columns: Sequence[int]) -> dict[str, Any]:
    scope: dict[str, Any] = {
        "repeat": repeat,
        "_date": date.fromordinal,
        "_delta": timedelta,
        "_far": far_time,
        "_EPOCH": EPOCH,
        "_EPOCH_UTC": EPOCH.replace(tzinfo=UTC),
        "_times": WIDE.multiply,
        "_digits": without_zeros,
    }
    for at in columns:
        if pa.types.is_decimal(stores[at].dtype):
            scope[f"u{at}"] = Decimal(1).scaleb(-stores[at].dtype.scale)
    exec(_compiled(code), scope)
    return scope


@lru_cache(256)
def _compiled(code: str) -> CodeType:
    """Compiles the code once: tables of equal columns, as every transaction makes them, share it."""
    return compile(code, "<rows>", "exec")


def _pairs(names: Sequence[str], cells: Sequence[str]) -> str:
    return ", ".join(f"{name!r}: {cell}" for name, cell in zip(names, cells, strict=True))


def _cell(store: ColumnStore, raw: str, at: int) -> str:
    """Returns the expression for a cell that is not NULL, of its raw value."""
    t, dtype = pa.types, store.dtype
    if t.is_string(dtype):
        return f"(x if (x := t{at}[{raw}]) is not ... else r{at}({raw}))"
    if t.is_date(dtype):
        return f"(_date(x) if 0 < (x := {raw} + {DAYS}) <= {_LAST_DAY} else _far())"
    if t.is_timestamp(dtype):
        epoch = "_EPOCH" if dtype.tz is None else "_EPOCH_UTC"
        return f"({epoch} + _delta(0, 0, x) if {_FIRST} <= (x := {raw}) <= {_LAST} else _far())"
    if t.is_duration(dtype):
        return f"_delta(0, 0, {raw})"
    if t.is_decimal(dtype):
        whole = raw if store.words == 1 else f"(c{at}[i + i + 1] << 64 | c{at}[i + i] & {_WORD})"
        return f"_digits(_times({whole}, u{at}))" if is_unscaled(dtype) else f"_times({whole}, u{at})"
    return raw
