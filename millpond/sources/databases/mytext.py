"""Rows of a SELECT of MySQL as it sends them, as text, in Arrow arrays.

PyMySQL would make a tuple of Python values of each row. Here the cells of a row are cut out of its packet, and a whole
column of them becomes an array at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql
from pymysql.constants import FIELD_TYPE

from millpond.errors import BadData
from millpond.formats.text import Misfit, convert
from millpond.sources.databases.mytypes import DURATION
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Schema, type_name

Cells = list[bytes | None]
_TIME = r"^(?P<minus>-?)(?P<h>\d+):(?P<m>\d+):(?P<s>\d+)(?:\.(?P<f>\d+))?$"
_DATE = r"^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"


def streamed(
    connection: pymysql.Connection[Any], query: str, schema: Schema, size: int
) -> Iterator[pa.RecordBatch]:
    """The rows of a query, ``size`` at a time. If they are not read to their end the connection must be closed."""
    connection.query(query, unbuffered=True)
    result: Any = connection._result
    packet = connection._read_packet
    try:
        whole = False
        while not whole:
            columns: list[Cells] = [[] for _ in schema]
            appends = [c.append for c in columns]
            for _ in range(size):
                data = packet()._data
                if data[0] == 0xFE and len(data) < 9:
                    whole = True
                    break
                _cut(data, appends)
            if columns[0]:
                yield _batch(schema, result.fields, columns)
    finally:  # PyMySQL would read what is left
        result.unbuffered_active = False
        result.connection = None


def _batch(schema: Schema, fields: Sequence[Any], columns: list[Cells]) -> pa.RecordBatch:
    arrays = [
        _bits(c.type, cells) if field.type_code == FIELD_TYPE.BIT else array_of(c.name, c.type, cells)
        for c, field, cells in zip(schema, fields, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow())


def _cut(data: bytes, appends: list[Callable[[bytes | None], None]]) -> None:
    """The cells of one row: this runs for each."""
    at = 0
    for append in appends:
        length = data[at]
        at += 1
        if length > 250:
            if length == 251:
                append(None)
                continue
            width = {252: 2, 253: 3, 254: 8}[length]
            length = int.from_bytes(data[at : at + width], "little")
            at += width
        end = at + length
        append(data[at:end])
        at = end


def array_of(name: str, dtype: pa.DataType | None, cells: Cells) -> pa.Array:
    """The cells of a column as an array of its type. Raises BadData with the column's name."""
    assert dtype is not None
    raw = pa.array(cells, pa.binary())
    if pa.types.is_binary(dtype):
        return raw
    try:
        texts = raw.cast(pa.string())
        if pa.types.is_string(dtype):
            return texts
        if dtype == DURATION:
            return _durations(texts)
        if pa.types.is_date(dtype) or pa.types.is_timestamp(dtype):
            return _times(texts, dtype)
        if pa.types.is_boolean(dtype):
            return texts.cast(pa.int64()).cast(dtype)
        return convert(texts, dtype, empty_is_null=False)
    except Misfit as error:
        raise unfit(name, dtype, f'the value "{error.value}"') from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise unfit(name, dtype, f"a value: {error}") from None


def _bits(dtype: pa.DataType, cells: Cells) -> pa.Array:
    numbers = pa.array([None if c is None else int.from_bytes(c, "big") for c in cells], pa.uint64())
    return numbers.cast(dtype)


def unfit(name: str, dtype: pa.DataType, what: str) -> BadData:
    return BadData(
        f'column "{name}" has {what}, which is no {type_name(dtype)}',
        hint="cast it in a query: 'query' = 'SELECT CAST(… AS …) …'",
    )


def _times(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Dates that there are not are NULL."""
    plain = TIMESTAMP_NTZ if pa.types.is_timestamp(dtype) else dtype
    there = pc.if_else(pc.match_substring_regex(texts, _DATE), texts, pa.nulls(1, pa.string())[0])
    try:
        found = there.cast(plain)
    except pa.ArrowInvalid:  # one like 31 February
        found = pa.array([_or_none(t, plain) for t in there.to_pylist()], plain)
    return found.cast(TIMESTAMP) if dtype == TIMESTAMP else found


def _or_none(text: str | None, dtype: pa.DataType) -> Any:
    try:
        return pa.array([text]).cast(dtype)[0].as_py()
    except pa.ArrowInvalid:
        return None


def _durations(texts: pa.Array) -> pa.Array:
    parts = pc.extract_regex(texts, _TIME)

    def part(name: str, digits: int = 1) -> Any:
        padded = pc.utf8_rpad(pc.struct_field(parts, name).fill_null(""), digits, "0")
        return np.asarray(padded.cast(pa.int64()))

    found = ((part("h") * 60 + part("m")) * 60 + part("s")) * 1_000_000 + part("f", 6)
    minus = np.asarray(pc.equal(pc.struct_field(parts, "minus").fill_null(""), "-"))
    signed = np.where(minus, -found, found)
    return pa.array(signed, pa.int64(), mask=np.asarray(parts.is_null())).cast(DURATION)
