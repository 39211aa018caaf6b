"""Converts rows of a MySQL SELECT, which are sent as text, to Arrow arrays.

PyMySQL would make a tuple of Python values of each row. Here the cells of a whole column are found in the packets, and
become an array at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql
from pymysql.constants import CR, FIELD_TYPE

from millpond.connectors.mysql.internals import reader_of, result_of
from millpond.connectors.mysql.packets import Packets
from millpond.connectors.mysql.types import DURATION
from millpond.errors import BadData
from millpond.formats.text import Misfit, convert
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Schema, type_name

_TIME = r"^(?P<minus>-?)(?P<h>\d+):(?P<m>\d+):(?P<s>\d+)(?:\.(?P<f>\d+))?$"
_DATE = r"^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"


def streamed(
    connection: pymysql.Connection[Any], query: str, schema: Schema, size: int
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a query, ``size`` at a time. If they are not read to their end the connection must
    be closed.
    """
    connection.query(query, unbuffered=True)
    result = result_of(connection)
    packets = Packets(reader_of(connection))
    try:
        for block in packets.blocks(size):
            yield _batch(schema, result.fields, block.columns(len(schema)))
    except OSError as error:
        raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, f"the connection was lost: {error}") from None
    finally:  # PyMySQL would read what is left
        result.unbuffered_active = False
        result.connection = None
    if packets.last is not None and packets.last[0] == 0xFF:
        pymysql.err.raise_mysql_exception(packets.last)


def _batch(schema: Schema, fields: Sequence[Any], columns: list[pa.Array]) -> pa.RecordBatch:
    arrays = [
        _bits(c.type, cells) if field.type_code == FIELD_TYPE.BIT else array_of(c.name, c.type, cells)
        for c, field, cells in zip(schema, fields, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow())


def array_of(name: str, dtype: pa.DataType | None, raw: pa.Array) -> pa.Array:
    """Returns the cells of a column, as they are sent, as an array of its type. Raises BadData with its name."""
    assert dtype is not None
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


def _bits(dtype: pa.DataType, cells: pa.Array) -> pa.Array:
    numbers = [None if c is None else int.from_bytes(c, "big") for c in cells.to_pylist()]
    return pa.array(numbers, pa.uint64()).cast(dtype)


def unfit(name: str, dtype: pa.DataType, what: str) -> BadData:
    return BadData(
        f'column "{name}" has {what}, which is no {type_name(dtype)}',
        hint="cast it in a query: 'query' = 'SELECT CAST(… AS …) …'",
    )


def _times(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Returns times; invalid dates are NULL."""
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
