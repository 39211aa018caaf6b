"""Parses values of PostgreSQL from their texts, as COPY and the changelog return them, a column at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.postgresql.nested_text import are_null, bytes_of, split, with_nulls
from millpond.connectors.postgresql.types import PgType
from millpond.errors import BadData
from millpond.formats.text import Misfit, convert
from millpond.types import type_name

_INTERVAL = (
    r"^P(?:(?P<years>-?\d+)Y)?(?:(?P<months>-?\d+)M)?(?:(?P<weeks>-?\d+)W)?(?:(?P<days>-?\d+)D)?"
    r"(?:T(?:(?P<hours>-?\d+)H)?(?:(?P<minutes>-?\d+)M)?(?:(?P<seconds>-?\d+(?:\.\d+)?)S)?)?$"
)
_UNITS = {"days": 86_400_000_000, "hours": 3_600_000_000, "minutes": 60_000_000}
_NIBBLES = np.full(256, 255, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_SHOWN = 60
WAYS_OUT = "cast it in 'query', or declare the column as STRING"


def from_texts(texts: pa.Array, kind: PgType, dtype: pa.DataType, column: str) -> pa.Array:
    """Parses the texts of a column to values of ``dtype``. Raises BadData with the name of the column and the first
    value that does not fit.
    """
    if pa.types.is_string(dtype):
        return texts
    try:
        return _typed(texts, kind, dtype)
    except pa.ArrowException:
        wrong = _first_wrong(texts, lambda part: _typed(part, kind, dtype))
        shown = wrong if len(wrong) <= _SHOWN else wrong[:_SHOWN] + "…"
        raise BadData(
            f'column "{column}" has the value "{shown}", which {type_name(dtype)} does not hold',
            hint=_hint(kind) or WAYS_OUT,
        ) from None


def _hint(kind: PgType) -> str | None:
    if kind.form == "array":
        return f"arrays of several dimensions, or that do not begin at 1, have no type here: {WAYS_OUT}"
    if kind.form == "interval":
        return f"an interval with months or years has no fixed length: {WAYS_OUT}"
    return None


def _first_wrong(texts: pa.Array, work: Callable[[pa.Array], object]) -> str:
    """Returns the first text that cannot be read, found by halving."""
    low, high = 0, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            work(texts.slice(low, middle - low))
            low = middle
        except pa.ArrowException:
            high = middle
    return str(texts[low].as_py())


def _typed(texts: pa.Array, kind: PgType, dtype: pa.DataType) -> pa.Array:
    if kind.form == "numeric" and pa.types.is_decimal(dtype):
        kind = PgType("numeric", dtype)  # at once, as it may have more digits
    return _values(texts, kind).cast(dtype)


def _values(texts: pa.Array, kind: PgType) -> pa.Array:
    return _READERS.get(kind.form, _cast)(texts, kind)


def _cast(texts: pa.Array, kind: PgType) -> pa.Array:
    return texts.cast(kind.arrow)


def _bool(texts: pa.Array, kind: PgType) -> pa.Array:
    return pc.equal(texts, "t")


def _numeric(texts: pa.Array, kind: PgType) -> pa.Array:
    try:
        return convert(texts, kind.arrow, empty_is_null=False)
    except Misfit:
        raise pa.ArrowInvalid("not a decimal of this size") from None


def _money(texts: pa.Array, kind: PgType) -> pa.Array:
    return pc.replace_substring_regex(texts, r"[$,]", "").cast(kind.arrow)


def _bytea(texts: pa.Array, kind: PgType) -> pa.Array:
    dense = texts.drop_null()
    data, bounds = bytes_of(dense)
    begins, lengths = bounds[:-1], np.diff(bounds)
    kept = np.ones(len(data), bool)
    kept[begins] = kept[begins + 1] = False  # every text begins with \x
    digits = _NIBBLES[data[kept]]
    values = (digits[0::2] << 4) | digits[1::2]
    sizes = np.zeros(len(texts), np.int64)
    sizes[_there(texts)] = (lengths - 2) // 2
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    buffers = [_validity(texts), pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers)


def _interval(texts: pa.Array, kind: PgType) -> pa.Array:
    parts = pc.extract_regex(texts, _INTERVAL)
    if parts.null_count > texts.null_count or not _only_zero(parts, "years", "months"):
        raise pa.ArrowInvalid("an interval with months")
    total = _number(parts, "seconds", pa.decimal128(25, 6))
    total = pc.multiply(total, pa.scalar(1_000_000, pa.decimal128(7, 0))).cast(pa.int64())
    for unit, size in _UNITS.items():
        total = pc.add_checked(total, pc.multiply_checked(_number(parts, unit, pa.int64()), size))
    found = pc.if_else(texts.is_null(), pa.scalar(None, pa.int64()), total)
    return found.cast(pa.duration("us"))


def _number(parts: pa.Array, name: str, dtype: pa.DataType) -> pa.Array:
    found = pc.struct_field(parts, name)
    return pc.if_else(pc.equal(pc.fill_null(found, ""), ""), "0", found).cast(dtype)


def _only_zero(parts: pa.Array, *names: str) -> bool:
    return all(pc.max(pc.abs(_number(parts, n, pa.int64()))).as_py() in (0, None) for n in names)


def _array(texts: pa.Array, kind: PgType) -> pa.Array:
    dense = texts.drop_null()
    pieces = split(dense, kind.delimiter.encode(), fenced=True)
    data, bounds = bytes_of(dense)
    if len(dense) and ((data[bounds[:-1]] != ord("{")).any() or _nested(dense)):
        raise pa.ArrowInvalid("an array of several dimensions")
    found = _values(with_nulls(pieces.texts, are_null(pieces)), kind.parts[0])
    counts = np.zeros(len(texts), np.int64)
    counts[_there(texts)] = pieces.counts
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, found, type=kind.arrow, mask=texts.is_null())


def _nested(texts: pa.Array) -> bool:
    """Returns whether an array contains arrays: an element that begins with a bracket has quotes, unless it is one."""
    return bool(pc.any(pc.starts_with(texts, "{{")).as_py())


def _row(texts: pa.Array, kind: PgType) -> pa.Array:
    dense = texts.drop_null()
    pieces = split(dense, b",", fenced=True, doubled=True)
    width = len(kind.parts)
    if not (pieces.counts == width).all():
        raise pa.ArrowInvalid("a row of another type")
    empty = ~pieces.quoted & (np.diff(bytes_of(pieces.texts)[1]) == 0)
    cells = with_nulls(pieces.texts, empty)
    there = _there(texts)
    place = np.zeros(len(texts), np.int64)
    place[there] = np.arange(len(dense)) * width
    columns = []
    for i, (part, field) in enumerate(zip(kind.parts, kind.arrow, strict=True)):
        taken = cells.take(pa.array(place + i, mask=~there))
        columns.append(_values(taken, part).cast(field.type))
    return pa.StructArray.from_arrays(columns, fields=list(kind.arrow), mask=texts.is_null())


def _hstore(texts: pa.Array, kind: PgType) -> pa.Array:
    dense = texts.drop_null()
    pieces = split(dense, b",>", fenced=False, skipped=b"= ")
    cells = with_nulls(pieces.texts, are_null(pieces))
    keys, items = (
        cells.take(pa.array(np.arange(0, len(cells), 2))),
        cells.take(pa.array(np.arange(1, len(cells), 2))),
    )
    counts = np.zeros(len(texts), np.int64)
    counts[_there(texts)] = pieces.counts // 2
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    # An offset that is NULL makes the map NULL.
    missing = np.concatenate([~_there(texts), [False]])
    return pa.MapArray.from_arrays(pa.array(offsets, mask=missing), keys, items)


def _there(texts: pa.Array) -> np.ndarray:
    return np.asarray(texts.is_valid())


def _validity(texts: pa.Array) -> pa.Buffer | None:
    return pa.array(_there(texts)).buffers()[1] if texts.null_count else None


_READERS: dict[str, Callable[[pa.Array, PgType], pa.Array]] = {
    "bool": _bool,
    "numeric": _numeric,
    "money": _money,
    "bytea": _bytea,
    "interval": _interval,
    "array": _array,
    "row": _row,
    "hstore": _hstore,
    "text": lambda texts, kind: texts,
}
