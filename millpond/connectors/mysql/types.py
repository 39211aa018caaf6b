"""Maps the types of MySQL and MariaDB to Arrow's.

| MySQL                        | Arrow                                                    |
|------------------------------|----------------------------------------------------------|
| TINYINT … BIGINT             | int8, int16, int32, int64; TINYINT(1) and BOOLEAN: int8  |
| … UNSIGNED                   | int16, int32, int32 (MEDIUMINT), int64, decimal(20, 0)   |
| DECIMAL(p, s)                | decimal(p, s), of more than 38 digits decimal(38, s)     |
| FLOAT, DOUBLE                | float, double                                            |
| BIT(1), BIT(n)               | bool, int64; BIT(64): decimal(20, 0)                     |
| DATE, DATETIME, TIMESTAMP    | date32, timestamp[us], timestamp[us, UTC]                |
| TIME                         | duration[us]: it may be negative, or longer than a day   |
| YEAR                         | int16                                                    |
| CHAR, VARCHAR, TEXT          | string, from every character set                         |
| ENUM, SET, JSON, UUID, INET  | string, as a SELECT returns them                         |
| BINARY, VARBINARY, BLOB      | binary                                                   |

A date that does not exist ('0000-00-00', a month or day that is 0) is NULL.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pymysql.constants import FIELD_TYPE, FLAG

from millpond.connectors.databases.arrow import cannot_hold
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ

BINARY = 63
"""The number of the collation of data that is not text."""
DIGITS = 38
UNSIGNED_LONG = pa.decimal128(20, 0)
DURATION = pa.duration("us")

_INTEGERS = {
    FIELD_TYPE.TINY: (pa.int8(), pa.int16()),
    FIELD_TYPE.SHORT: (pa.int16(), pa.int32()),
    FIELD_TYPE.INT24: (pa.int32(), pa.int32()),
    FIELD_TYPE.LONG: (pa.int32(), pa.int64()),
    FIELD_TYPE.LONGLONG: (pa.int64(), UNSIGNED_LONG),
}
_SIMPLE = {
    FIELD_TYPE.FLOAT: pa.float32(),
    FIELD_TYPE.DOUBLE: pa.float64(),
    FIELD_TYPE.DATE: pa.date32(),
    FIELD_TYPE.NEWDATE: pa.date32(),
    FIELD_TYPE.DATETIME: TIMESTAMP_NTZ,
    FIELD_TYPE.TIMESTAMP: TIMESTAMP,
    FIELD_TYPE.TIME: DURATION,
    FIELD_TYPE.YEAR: pa.int16(),
    FIELD_TYPE.ENUM: pa.string(),
    FIELD_TYPE.SET: pa.string(),
    FIELD_TYPE.JSON: pa.string(),
    FIELD_TYPE.NULL: pa.string(),
}
TEXTS = frozenset(
    {
        FIELD_TYPE.STRING,
        FIELD_TYPE.VAR_STRING,
        FIELD_TYPE.VARCHAR,
        FIELD_TYPE.BLOB,
        FIELD_TYPE.TINY_BLOB,
        FIELD_TYPE.MEDIUM_BLOB,
        FIELD_TYPE.LONG_BLOB,
    }
)


def integer(code: int, unsigned: bool) -> pa.DataType:
    return _INTEGERS[code][unsigned]


def is_integer(code: int) -> bool:
    return code in _INTEGERS


def decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(min(precision, DIGITS), scale)


def bits(length: int) -> pa.DataType:
    return pa.bool_() if length == 1 else pa.int64() if length < 64 else UNSIGNED_LONG


def arrow_type(name: str, code: int, *, unsigned: bool, binary: bool, length: int, scale: int) -> pa.DataType:
    """Returns the type of a column of a result. Raises NotSupported with the column's name if there is none."""
    if code in _INTEGERS:
        return integer(code, unsigned)
    if code in (FIELD_TYPE.NEWDECIMAL, FIELD_TYPE.DECIMAL):
        if scale > DIGITS:
            raise cannot_hold(name, f"DECIMAL with {scale} digits after the point")
        return decimal(length - (scale > 0) - (not unsigned), scale)
    if code == FIELD_TYPE.BIT:
        return bits(length)
    if code in TEXTS:
        return pa.binary() if binary else pa.string()
    if code in _SIMPLE:
        return _SIMPLE[code]
    raise cannot_hold(name, "GEOMETRY" if code == FIELD_TYPE.GEOMETRY else f"number {code}")


def of_field(field: Any) -> pa.DataType:
    """Returns the type of a column of a result of PyMySQL."""
    return arrow_type(
        field.name,
        field.type_code,
        unsigned=bool(field.flags & FLAG.UNSIGNED),
        binary=field.charsetnr == BINARY and not field.flags & (FLAG.ENUM | FLAG.SET),
        length=field.length,
        scale=field.scale,
    )
