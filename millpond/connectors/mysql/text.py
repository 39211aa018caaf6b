"""Converts rows of a MySQL SELECT, which are sent as text, to Arrow arrays.

PyMySQL would make a tuple of Python values of each row. Here the cells of a row are sliced from its packet, and a whole
column of them becomes an array at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql
from pymysql.constants import CR, FIELD_TYPE

from millpond.connectors.mysql.events import lenenc
from millpond.connectors.mysql.internals import reader_of, result_of
from millpond.connectors.mysql.types import DURATION
from millpond.errors import BadData
from millpond.formats.text import Misfit, convert
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Schema, type_name

Cells = list[bytes | None]
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
    cut = _cutter(len(schema))
    try:
        last = None
        while last is None:
            columns: list[Cells] = [[] for _ in schema]
            last = cut(reader_of(connection), size, columns)
            if columns[0]:
                yield _batch(schema, result.fields, columns)
    except OSError as error:
        raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, f"the connection was lost: {error}") from None
    finally:  # PyMySQL would read what is left
        result.unbuffered_active = False
        result.connection = None
    if last[0] == 0xFF:
        pymysql.err.raise_mysql_exception(last)


Read = Callable[[int], bytes]
_PART = 0xFFFFFF
"""The length of a packet that another one continues."""


@cache
def _cutter(count: int) -> Callable[[Read, int, list[Cells]], bytes | None]:
    """Returns a function that reads the packets of so many rows, and appends the cells of each to the lists of columns:
    it runs for each row, and is made for a number of columns. It returns the packet after the last row, if it was
    reached.
    """
    lines = ["def cut(read, rows, columns):"]
    lines += [f"    a{i} = columns[{i}].append" for i in range(count)]
    lines += [
        "    for _ in range(rows):",
        "        b = packet(read)",
        "        if b[0] > 253 and (b[0] == 255 or len(b) < 9):",
        "            return b",
        "        p = 0",
    ]
    for i in range(count):
        lines += [
            "        n = b[p]",
            "        if n < 251:",
            "            q = p + 1 + n",
            f"            a{i}(b[p+1:q])",
            "            p = q",
            "        elif n == 251:",
            f"            a{i}(None)",
            "            p += 1",
            "        else:",
            "            n, p = lenenc(b, p)",
            f"            a{i}(b[p:p+n])",
            "            p += n",
        ]
    made: dict[str, Any] = {}
    exec("\n".join(lines), {"packet": _packet, "lenenc": lenenc}, made)
    found: Callable[[Read, int, list[Cells]], bytes | None] = made["cut"]
    return found


def _packet(read: Read) -> bytes:
    head = read(4)
    if len(head) < 4:
        raise OSError("the server has closed it")
    size = head[0] | head[1] << 8 | head[2] << 16
    data = read(size)
    if len(data) < size:
        raise OSError("the server has closed it")
    return data if size < _PART else data + _packet(read)


def _batch(schema: Schema, fields: Sequence[Any], columns: list[Cells]) -> pa.RecordBatch:
    arrays = [
        _bits(c.type, cells) if field.type_code == FIELD_TYPE.BIT else array_of(c.name, c.type, cells)
        for c, field, cells in zip(schema, fields, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow())


def array_of(name: str, dtype: pa.DataType | None, cells: Cells) -> pa.Array:
    """Returns the cells of a column as an array of its type. Raises BadData with the column's name."""
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
