"""Reads and encodes single rows: functions that read a record by its key, and that make cells of the values of a
record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import lru_cache
from types import CodeType
from typing import Any

import pyarrow as pa

from millpond.records.values import Unfit, exact
from millpond.tables._blocks import MASK, SHIFT
from millpond.tables._live import LiveTable
from millpond.tables._rows import DAYS, EPOCH, WIDE
from millpond.tables.base import Get, Has
from millpond.types import Schema


def is_plain(dtype: pa.DataType | None) -> bool:
    """Returns whether values of the type are keys as they are."""
    return bool(pa.types.is_integer(dtype) or pa.types.is_string(dtype))


def make_reads(table: LiveTable, step: Iterator[int], get: Get, has: Has) -> tuple[Get, Has]:
    """Returns ``get`` and ``has`` by the key, in half a microsecond if the key is found without conversion.

    A slot that is not published yet is left to ``get`` and ``has``, which use the newest snapshot.
    """
    hot = table.hot
    hot.count_by(step)
    scope: dict[str, Any] = {
        "table": table,
        "step": step,
        "get": get,
        "has": has,
        "known": hot.records.get,
        "keep": hot.keep,
    }
    exec(_reads(table.key, _plain_key(table.schema), hot.wanted), scope)
    return scope["get_record"], scope["contains"]


@lru_cache(maxsize=256)
def _reads(names: tuple[str, ...], plain_key: str, hot: bool) -> CodeType:
    read = f"live.blocks[slot >> {SHIFT}].row(slot & {MASK})"
    if hot:
        first = """try:
        record = known(key)
    except TypeError:
        return get(key)
    if record is not None:
        next(step)
        return record.copy()
    live = table.live
    slot = live.newest.get(key, -1)"""
        answer = f"record = {read}; keep(live, key, slot, record); return record"
    else:
        first = """live = table.live
    try:
        slot = live.newest.get(key, -1)
    except TypeError:
        return get(key)"""
        answer = f"return {read}"
    code = f"""
def get_record(key):
    {first}
    if -1 < slot < live.end:
        next(step)
        {answer}
    if slot == -1 and {plain_key}:
        next(step)
        return None
    return get(key)

def contains(given=None, **equal):
    key = given
    if equal:
        if given is not None or len(equal) != {len(names)}:
            return has(given, **equal)
        try:
            key = {", ".join(f"equal[{name!r}]" for name in names)}
        except KeyError:
            return has(given, **equal)
    live = table.live
    try:
        slot = live.newest.get(key, -1)
    except TypeError:
        return has(given, **equal)
    if -1 < slot < live.end:
        next(step)
        return True
    if slot == -1 and {plain_key}:
        next(step)
        return False
    return has(given, **equal)
"""
    return compile(code, "<reads by key>", "exec")


def _plain_key(schema: Schema) -> str:
    """Returns the test whether a missing key is of a kind that needs no conversion."""
    kinds = ["int" if pa.types.is_integer(c.type) else "str" for k in schema.key if (c := schema.find(k))]
    if len(kinds) == 1:
        return f"type(key) is {kinds[0]}"
    parts = " and ".join(f"type(key[{at}]) is {kind}" for at, kind in enumerate(kinds))
    return f"type(key) is tuple and len(key) == {len(kinds)} and {parts}"


def writers(schema: Schema) -> dict[str, tuple[int, Callable[[Any], Any]]]:
    """Returns for each column its place and the function that converts a value for its store. The function raises
    Unfit.
    """
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
        return lambda v: exact(v, dtype).toordinal() - DAYS
    if t.is_timestamp(dtype):
        return lambda v: _microseconds(exact(v, dtype) - EPOCH)
    if t.is_duration(dtype):
        return lambda v: _microseconds(exact(v, dtype))
    if t.is_decimal(dtype):
        return lambda v: int(WIDE.scaleb(exact(v, dtype), dtype.scale))
    if t.is_boolean(dtype) or t.is_floating(dtype) or t.is_binary(dtype):
        return lambda v: exact(v, dtype)
    return _left_to_arrow


def _microseconds(time: timedelta) -> int:
    return (time.days * 86_400 + time.seconds) * 1_000_000 + time.microseconds


def _left_to_arrow(value: Any) -> Any:
    raise Unfit("nested values are taken as Arrow")
