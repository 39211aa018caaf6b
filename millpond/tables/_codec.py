"""Single rows: functions made for a schema that read a record by key, and the cells of a record to be written.

The functions that read are generated, one expression for each column over the raw cells of a block: about 40 ns a
cell, where an Arrow scalar costs 300 and more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.records.values import Unfit, exact
from millpond.tables._blocks import MASK, SHIFT
from millpond.tables._columns import ColumnStore
from millpond.tables.base import Get, Has
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.tables.memory import MemoryTable

_DAYS = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)
_WIDE = Context(prec=80)
_WORD = (1 << 64) - 1


def is_plain(dtype: pa.DataType | None) -> bool:
    """Whether values of the type are keys as they are."""
    return bool(pa.types.is_integer(dtype) or pa.types.is_string(dtype))


def make_reads(
    table: MemoryTable, stores: Sequence[ColumnStore], step: Iterator[int], get: Get, has: Has
) -> tuple[Get, Has]:
    """``get`` and ``has`` by the key, in half a microsecond where the key is found as it stands.

    A slot that is not published yet is left to ``get`` and ``has``, which take the newest snapshot.
    """
    schema = table.schema
    names = [c.name for c in schema]
    cells = [_cell(s, at) for at, s in enumerate(stores)]
    or_null = [
        f"(None if b.v{at} is not None and not b.v{at}[i] else {cell})" if s.nulls_apart else cell
        for at, (s, cell) in enumerate(zip(stores, cells, strict=True))
    ]
    code = f"""
def get_record(key):
    live = table.live
    try:
        slot = live.newest.get(key, -1)
    except TypeError:
        return get(key)
    if 0 <= slot < live.end:
        next(step)
        b = live.blocks[slot >> {SHIFT}]
        i = slot & {MASK}
        if b.whole:
            return {{{_pairs(names, cells)}}}
        return {{{_pairs(names, or_null)}}}
    if slot == -1 and {_plain_key(schema)}:
        next(step)
        return None
    return get(key)

def contains(key=None, **equal):
    if equal:
        return has(key, **equal)
    live = table.live
    try:
        slot = live.newest.get(key, -1)
    except TypeError:
        return has(key)
    if 0 <= slot < live.end:
        next(step)
        return True
    if slot == -1 and {_plain_key(schema)}:
        next(step)
        return False
    return has(key)
"""
    scope: dict[str, Any] = {
        "table": table,
        "step": step,
        "get": get,
        "has": has,
        "_date": date.fromordinal,
        "_delta": timedelta,
        "_EPOCH": _EPOCH,
        "_EPOCH_UTC": _EPOCH.replace(tzinfo=UTC),
        "_decimal": Decimal,
        "_scaled": _WIDE.scaleb,
    }
    exec(code, scope)
    return scope["get_record"], scope["contains"]


def _pairs(names: Sequence[str], cells: Sequence[str]) -> str:
    return ", ".join(f"{name!r}: {cell}" for name, cell in zip(names, cells, strict=True))


def _plain_key(schema: Schema) -> str:
    """Whether a key that is not there is of a kind that needs no conversion."""
    kinds = ["int" if pa.types.is_integer(c.type) else "str" for k in schema.key if (c := schema.find(k))]
    if len(kinds) == 1:
        # A text may be a condition where the key is a number.
        return f"type(key) is {kinds[0]}"
    parts = " and ".join(f"type(key[{at}]) is {kind}" for at, kind in enumerate(kinds))
    return f"type(key) is tuple and len(key) == {len(kinds)} and {parts}"


def _cell(store: ColumnStore, at: int) -> str:
    """The expression for a cell that is not NULL."""
    t, dtype, raw = pa.types, store.dtype, f"b.c{at}[i]"
    if t.is_string(dtype):
        return f"(x if (x := b.t{at}[{raw}]) is not ... else b.r{at}({raw}))"
    if t.is_date(dtype):
        return f"_date({raw} + {_DAYS})"
    if t.is_timestamp(dtype):
        return f"({'_EPOCH' if dtype.tz is None else '_EPOCH_UTC'} + _delta(0, 0, {raw}))"
    if t.is_duration(dtype):
        return f"_delta(0, 0, {raw})"
    if t.is_decimal(dtype):
        low = f"b.c{at}[i + i]"
        whole = low if dtype.precision <= 18 else f"(b.c{at}[i + i + 1] << 64 | {low} & {_WORD})"
        return f"_scaled(_decimal({whole}), {-dtype.scale})"
    return raw


def writers(schema: Schema) -> dict[str, tuple[int, Callable[[Any], Any]]]:
    """For each column its place and what makes of a value what its store takes. The function raises Unfit."""
    return {c.name: (at, _writer(c.type)) for at, c in enumerate(schema) if c.type is not None}


def _writer(dtype: pa.DataType) -> Callable[[Any], Any]:
    t = pa.types
    if t.is_integer(dtype):
        half = 1 << (dtype.bit_width - 1)
        return lambda v: v if type(v) is int and -half <= v < half else exact(v, dtype)
    if t.is_float64(dtype):
        return lambda v: v if type(v) is float else exact(v, dtype)
    if t.is_string(dtype):
        return lambda v: v if type(v) is str and v.isascii() else exact(v, dtype)
    if t.is_date(dtype):
        return lambda v: exact(v, dtype).toordinal() - _DAYS
    if t.is_timestamp(dtype):
        return lambda v: _microseconds(exact(v, dtype) - _EPOCH)
    if t.is_duration(dtype):
        return lambda v: _microseconds(exact(v, dtype))
    if t.is_decimal(dtype):
        return lambda v: int(_WIDE.scaleb(exact(v, dtype), dtype.scale))
    if t.is_boolean(dtype) or t.is_floating(dtype) or t.is_binary(dtype):
        return lambda v: exact(v, dtype)
    return _left_to_arrow


def _microseconds(delta: timedelta) -> int:
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _left_to_arrow(value: Any) -> Any:
    raise Unfit("nested values are taken as Arrow")
