"""Maps types to those of tables in MySQL, and tells which values it cannot store.

| SQL                        | in the database                                                        |
|----------------------------|------------------------------------------------------------------------|
| BOOLEAN                    | TINYINT(1)                                                             |
| TINYINT … BIGINT           | the same                                                               |
| FLOAT, DOUBLE              | the same; neither NaN nor infinities                                   |
| DECIMAL(p, s)              | the same                                                               |
| STRING                     | LONGTEXT, in a key VARCHAR, compared byte by byte                      |
| BINARY                     | LONGBLOB, in a key VARBINARY                                           |
| DATE                       | DATE, of the years 1 to 9999                                           |
| TIMESTAMP, TIMESTAMP_NTZ   | DATETIME(6), in UTC, of the years 1 to 9999                            |
| INTERVAL DAY TO SECOND     | BIGINT, microseconds                                                   |
| ARRAY, MAP, STRUCT         | LONGTEXT, JSON                                                         |
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Changes
from millpond.connectors.databases.nested_values import from_json, to_json
from millpond.connectors.databases.texts import to_texts
from millpond.errors import InvalidRecord
from millpond.types import TIMESTAMP_NTZ, Column, whole

KEY_BYTES = 3072
"""Bytes of an index of InnoDB."""
_LETTER = 4
"""Bytes of a character."""
_OTHER = 32
"""Bytes of a key column that is no text, at most."""

_NAMES = {
    pa.bool_(): "tinyint(1)",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "longtext",
    pa.binary(): "longblob",
    pa.date32(): "date",
    pa.duration("us"): "bigint",
}
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_TEXTS = ("varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TYPE = re.compile(r"(\w+)(?:\(([\d,]+)\))?(.*)")

_DAYS = (-719_162, 2_932_896)
"""The first day of the year 1 and the last of 9999, from 1970."""
_DAY = 86_400_000_000
_TIMES = (_DAYS[0] * _DAY, (_DAYS[1] + 1) * _DAY - 1)


def is_text(dtype: pa.DataType) -> bool:
    """Returns whether an index on values of the type needs a length."""
    return bool(pa.types.is_string(dtype) or pa.types.is_binary(dtype))


def key_length(dtype: pa.DataType, key: Sequence[pa.DataType]) -> int:
    """Returns how many characters, or bytes, a text of a key with columns of these types may have: they share the bytes
    of an index.
    """
    texts = sum(map(is_text, key))
    room = (KEY_BYTES - _OTHER * (len(key) - texts)) // max(1, texts)
    return room // _LETTER if pa.types.is_string(dtype) else room


def sql_type(dtype: pa.DataType, length: int | None = None) -> str:
    """Returns the type in CREATE TABLE; of a text in a key with its length."""
    t = pa.types
    if t.is_decimal(dtype):
        return f"decimal({dtype.precision},{dtype.scale})"
    if t.is_timestamp(dtype):
        return "datetime(6)"
    if length is not None and is_text(dtype):
        return f"{'varchar' if t.is_string(dtype) else 'varbinary'}({length})"
    return "longtext" if t.is_nested(dtype) else _NAMES[dtype]


def holds(there: str, dtype: pa.DataType) -> bool:
    """Returns whether a column of the database can represent the values of the declared type."""
    found, t = _TYPE.fullmatch(there.lower()), pa.types
    if found is None or "unsigned" in found[3] or "zerofill" in found[3]:
        return False
    name, sizes = found[1], [int(n) for n in (found[2] or "").split(",") if n]
    if t.is_string(dtype) or t.is_nested(dtype):
        return name in _TEXTS  # CHAR loses spaces at the end
    if t.is_binary(dtype):
        return name in _BYTES  # BINARY adds bytes at the end
    if t.is_decimal(dtype):
        if name != "decimal":
            return False
        precision, scale = sizes
        return bool(scale >= dtype.scale and precision - scale >= dtype.precision - dtype.scale)
    if t.is_timestamp(dtype):
        return sizes == [6] and (name == "datetime" or (name == "timestamp" and dtype.tz is not None))
    if t.is_floating(dtype):
        return not sizes and name in (("float", "double") if dtype == pa.float32() else ("double",))
    if t.is_boolean(dtype):
        return name == "tinyint"
    if t.is_date(dtype):
        return name == "date"
    wanted = _NAMES[dtype]
    return name in _INTEGERS[_INTEGERS.index(wanted) :]


# values


def unstorable(values: pa.Array, length: int | None) -> tuple[pa.Array, str] | None:
    """Returns which values the database cannot store, and why, if the type has such values; ``length`` is that of texts
    in a key.
    """
    t, dtype = pa.types, values.type
    if t.is_floating(dtype):
        return pc.invert(pc.is_finite(values)), "is NaN or infinite, which the database cannot store"
    if t.is_date(dtype) or t.is_timestamp(dtype):
        days = t.is_date(dtype)
        numbers = values.view(pa.int32() if days else pa.int64())
        first, last = _DAYS if days else _TIMES
        outside = pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
        return outside, "is not of the years 1 to 9999, which the database can store"
    if length is None or not is_text(dtype):
        return None
    sizes, unit = (
        (pc.utf8_length(values), "characters") if t.is_string(dtype) else (pc.binary_length(values), "bytes")
    )
    return pc.greater(sizes, length), f"is longer than {length} {unit}, the limit of this key in the database"


def encoded(values: pa.Array | pa.ChunkedArray, dtype: pa.DataType) -> list[Any]:
    """Converts values for the driver."""
    t = pa.types
    if isinstance(values, pa.ChunkedArray):
        values = whole(values)
    if t.is_nested(dtype):
        return list(to_json(values))
    if t.is_floating(dtype):
        # -0.0 becomes 0.0: they are equal in SQL, and so must be a key.
        values = pc.add(values, pa.scalar(0.0, dtype))
    elif t.is_date(dtype):
        values = values.cast(pa.string())
    elif t.is_timestamp(dtype):
        values = values.view(pa.int64()).view(TIMESTAMP_NTZ).cast(pa.string())
    elif t.is_duration(dtype):
        values = values.view(pa.int64())
    return list(values.to_pylist())


def decoded(values: list[Any], dtype: pa.DataType) -> pa.Array:
    """Converts values of the driver, which are numbers and texts, to the type."""
    t = pa.types
    if t.is_nested(dtype):
        return from_json(values, dtype)
    if t.is_boolean(dtype):
        return pa.array(values, pa.int8()).cast(dtype)
    if t.is_floating(dtype):
        return pa.array(values, pa.float64()).cast(dtype)
    if t.is_decimal(dtype) or t.is_date(dtype):
        return pa.array(values, pa.string()).cast(dtype)
    if t.is_timestamp(dtype):
        return pa.array(values, pa.string()).cast(TIMESTAMP_NTZ).view(pa.int64()).view(dtype)
    if t.is_duration(dtype):
        return pa.array(values, pa.int64()).view(dtype)
    return pa.array(values, dtype)


def bytes_of(cells: list[Any], dtype: pa.DataType) -> Any:
    """Returns how long the values of a column are in a statement, at most."""
    if not is_text(dtype) and not pa.types.is_nested(dtype):
        return _OTHER * 2
    each = 2 if pa.types.is_binary(dtype) else 2 * _LETTER
    return np.fromiter((len(c) * each + 16 if c is not None else 16 for c in cells), np.int64, len(cells))


def slices(sizes: Any, most: int, rows: int | None = None) -> Iterator[tuple[int, int]]:
    """Yields parts of rows with these sizes that have about so many bytes, of one row at least and ``rows`` at most."""
    ends = np.cumsum(sizes)
    first = 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        last = last if rows is None else min(last, first + rows)
        yield first, last
        first = last


def parameter(column: Column) -> str:
    """Returns a parameter of a comparison with the column."""
    if pa.types.is_timestamp(column.type):
        return "CAST(%s AS DATETIME(6))"
    return "CAST(%s AS DATE)" if pa.types.is_date(column.type) else "%s"


def check_storable(changes: Changes, columns: Sequence[tuple[str, int | None]], what: str) -> None:
    """Raises InvalidRecord if a row has a value that MySQL does not store. ``columns`` are names, with the length of a
    text in the key.
    """
    for name, length in columns:
        odd = unstorable(whole(changes.rows.column(name)), length)
        if odd is None:
            continue
        wrong, why = odd[0].fill_null(False), odd[1]
        if changes.deleted is not None:
            wrong = pc.and_not(wrong, changes.deleted)
        row = pc.index(wrong, True).as_py()
        if row >= 0:
            raise InvalidRecord(f'row {row} for {what}: field "{name}" {why}', row=row, field=name)


def digests_of(keys: Sequence[pa.Array], columns: Sequence[Column]) -> list[Any]:
    """Returns the hashes of keys, with their columns in the order of the key."""
    texts = [to_texts(k, c.type).to_pylist() for k, c in zip(keys, columns, strict=True)]
    return [hashlib.sha256(repr(key).encode()).digest() for key in zip(*texts, strict=True)]
