"""Maps the types of ClickHouse: how each is transferred, and its Arrow type.

A column is transferred as its own type, or is cast by the server to one that every version writes to Arrow alike. Texts
are transferred as bytes, as ClickHouse does not check whether they are UTF-8.

| ClickHouse                              | here                                               |
|-----------------------------------------|----------------------------------------------------|
| Bool, Int8 … Int64, Float32, Float64    | the same                                           |
| UInt8, UInt16, UInt32, UInt64           | SMALLINT, INT, BIGINT, DECIMAL(20,0)               |
| Int128, UInt128, Int256, UInt256        | DECIMAL(38,0); a longer value is an error          |
| Decimal(p, s)                           | DECIMAL(p,s); of more than 38 digits DECIMAL(38,s) |
| Date, Date32                            | DATE                                               |
| DateTime, DateTime64                    | TIMESTAMP; digits below a microsecond: an error    |
| String, UUID, Enum, IPv4, IPv6, Time    | STRING                                             |
| FixedString                             | BINARY                                             |
| JSON, Dynamic, Variant                  | STRING, as JSON                                    |
| Interval of a fixed length              | INTERVAL DAY TO SECOND                             |
| Array, Map, Tuple, Nested, geometries   | ARRAY, MAP, STRUCT, ARRAY<STRUCT>, of these        |
| Nullable, LowCardinality, SimpleAggregateFunction | what they contain                        |
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from millpond.types import TIMESTAMP

_SAME = {
    "Bool": pa.bool_(),
    "Int8": pa.int8(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "String": pa.string(),
    "Date32": pa.date32(),
    "Nothing": pa.null(),
}
_CAST = {
    "UInt8": ("Int16", pa.int16()),
    "UInt16": ("Int32", pa.int32()),
    "UInt32": ("Int64", pa.int64()),
    "UInt64": ("Decimal(20, 0)", pa.decimal128(20, 0)),
    "BFloat16": ("Float32", pa.float32()),
    "Date": ("Date32", pa.date32()),
    "DateTime": ("DateTime64(6, 'UTC')", TIMESTAMP),
    **{
        name: ("String", pa.string())
        for name in "UUID IPv4 IPv6 Enum8 Enum16 Time Time64 JSON Object".split()
    },
}
_POINTS = "Array(Point)"
_GEOMETRY = {
    "Point": "Tuple(Float64, Float64)",
    "Ring": _POINTS,
    "LineString": _POINTS,
    "MultiLineString": "Array(LineString)",
    "Polygon": "Array(Ring)",
    "MultiPolygon": "Array(Polygon)",
}
_WIDE = ("Int128", "UInt128", "Int256", "UInt256")
_ANY = ("Dynamic", "Variant")
_MICROSECONDS = {
    "IntervalMicrosecond": 1,
    "IntervalMillisecond": 1_000,
    "IntervalSecond": 1_000_000,
    "IntervalMinute": 60_000_000,
    "IntervalHour": 3_600_000_000,
    "IntervalDay": 86_400_000_000,
    "IntervalWeek": 604_800_000_000,
}
_NAMED = re.compile(r"\s*(?:`((?:[^`\\]|\\.|``)+)`|(\w+))\s+(\S.*)", re.DOTALL)


class Unreadable(ValueError):
    """Reports a type that is not supported, with what to do in a query."""


@dataclass(frozen=True, slots=True)
class Wire:
    """Describes how a column is transferred: ``made`` is its SQL, with {0} for the column; ``type`` its type here."""

    type: pa.DataType
    made: str = "{0}"


def wire_of(text: str) -> Wire:
    """Returns how a type is transferred. Raises Unreadable."""
    bare = _bare(text)
    name, _ = _split(bare)
    if name in _ANY:
        return Wire(pa.string(), "if(isNull({0}), NULL, toJSONString({0}))")
    if name in _MICROSECONDS:
        return Wire(pa.duration("us"), f"toInt64({{0}}) * {_MICROSECONDS[name]}")
    sent, dtype = _walk(text)
    if _same(sent, text):
        return Wire(dtype)
    # ClickHouse cannot cast the widest integers to decimals, but can cast their digits.
    digits, _ = _walk(text, wide="String")
    made = "{0}" if digits == sent else _cast("{0}", digits)
    return Wire(dtype, _cast(made, sent))


def _cast(made: str, sent: str) -> str:
    literal = sent.replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST({made}, '{literal}')"


def nested(parts: dict[str, str]) -> str:
    """Returns the type of a Nested whose columns are stored separately, by the types of these, which are arrays."""
    return f"Nested({', '.join(f'{_quoted(name)} {_split(kind)[1][0]}' for name, kind in parts.items())})"


def _walk(text: str, wide: str = "Decimal(76, 0)") -> tuple[str, pa.DataType]:
    """Returns the type that is sent and the Arrow type; ``wide`` is what the widest integers are sent as."""
    name, arguments = _split(text)
    if name in _WIDE:
        return wide, pa.decimal128(38, 0)
    if name in _SAME:
        return name, _SAME[name]
    if name in _CAST:
        return _CAST[name]
    if name in _GEOMETRY:
        return _walk(_GEOMETRY[name], wide)
    match name:
        case "Nullable":
            sent, dtype = _walk(arguments[0], wide)
            return (sent if sent.startswith(("Array", "Map", "Tuple")) else f"Nullable({sent})"), dtype
        case "LowCardinality":
            return _walk(arguments[0], wide)
        case "SimpleAggregateFunction":
            return _walk(arguments[1], wide)
        case "Decimal":
            digits, scale = (int(a) for a in arguments)
            if scale > 38:
                raise Unreadable("it has more than 38 digits behind the point: toString(…) keeps them")
            return f"Decimal({digits}, {scale})", pa.decimal128(min(digits, 38), scale)
        case "FixedString":
            return f"FixedString({arguments[0]})", pa.binary()
        case "DateTime64":
            return f"DateTime64({max(int(arguments[0]), 6)}, 'UTC')", TIMESTAMP
        case "Array":
            sent, dtype = _walk(arguments[0], wide)
            return f"Array({sent})", pa.list_(pa.field("element", dtype))
        case "Map":
            (key, key_type), (value, value_type) = _walk(arguments[0], wide), _walk(arguments[1], wide)
            return f"Map({key}, {value})", pa.map_(key_type, value_type)
        case "Tuple":
            return _tuple(arguments, wide)
        case "Nested":
            sent, dtype = _tuple(arguments, wide)
            return f"Array({sent})", pa.list_(pa.field("element", dtype))
        case "AggregateFunction":
            function = _split(arguments[0])[0]
            raise Unreadable(
                f"it holds states of an aggregate, not values: finalizeAggregation(…), {function}Merge(…)"
            )
    raise Unreadable("there is no type for it here: toString(…) gives it as text")


def _tuple(arguments: list[str], wide: str) -> tuple[str, pa.DataType]:
    sent, fields = [], []
    for number, argument in enumerate(arguments, 1):
        name, kind = _element(argument)
        inner, dtype = _walk(kind, wide)
        sent.append(inner if name is None else f"{_quoted(name)} {inner}")
        fields.append(pa.field(name or str(number), dtype))
    return f"Tuple({', '.join(sent)})", pa.struct(fields)


def _element(text: str) -> tuple[str | None, str]:
    """Returns the name, if it has one, and the type of an element of a Tuple."""
    match = _NAMED.fullmatch(text)
    if match is None:
        return None, text
    quoted = match[1]
    return (re.sub(r"\\(.)", r"\1", quoted.replace("``", "`")) if quoted else match[2]), match[3]


def _quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _bare(text: str) -> str:
    name, arguments = _split(text)
    return _bare(arguments[0]) if name in ("Nullable", "LowCardinality") else text


def _same(one: str, other: str) -> bool:
    return re.sub(r"\s", "", one) == re.sub(r"\s", "", other)


def _split(text: str) -> tuple[str, list[str]]:
    """Returns a type's name, and its arguments: what is between commas outside of brackets and quotes."""
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return name.strip(), []
    arguments, depth, quote, start, at = [], 0, "", 0, 0
    inner = rest.rstrip()[:-1]
    while at < len(inner):
        char = inner[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'`\"":
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and not depth:
            arguments.append(inner[start:at].strip())
            start = at + 1
        at += 1
    arguments.append(inner[start:].strip())
    return name.strip(), arguments
