"""Converts Avro schemas: from JSON to a tree of nodes with Arrow types, and from columns to JSON.

As in Spark, a union with null is a nullable column, one of int and long is BIGINT, of float and double DOUBLE; any
other is a STRUCT of member0, member1, …, of which one is set. Times of day are whole numbers, as there is no type for
them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.errors import InvalidOption
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema, type_name

_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
References = Sequence[tuple[str, str]]
"""The name and the text of each schema that is referred to; what one refers to precedes it."""
UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_NUMBERS = ({"int", "long"}, {"float", "double"})


@dataclass(frozen=True)
class Node:
    """Represents an Avro type. ``type`` is the type of its column."""

    kind: str
    type: pa.DataType
    inner: tuple[Node, ...] = ()
    """Items of an array, values of a map, fields of a record, branches of a union."""
    names: tuple[str, ...] = ()
    """Names of the fields of a record, or the symbols of an enum."""
    size: int = 0
    """Bytes of a fixed."""
    unit: str = ""
    """The unit of a timestamp: ms, us or ns."""

    @property
    def columns(self) -> Schema:
        """Returns the columns of a record."""
        return Schema(tuple(Column(n, i.type) for n, i in zip(self.names, self.inner, strict=True)))

    @property
    def can_be_empty(self) -> bool:
        """Returns whether a value may take no bytes at all."""
        if self.kind == "record":
            return all(i.can_be_empty for i in self.inner)
        return self.kind == "null" or (self.kind == "fixed" and self.size == 0)


def parse_avro(text: str, references: References = ()) -> Node:
    """Parses the schema of a record. Raises InvalidOption."""
    node = parse_type(text, references)
    if node.kind != "record":
        raise InvalidOption(
            f"the schema of Avro is a {node.kind}, and messages are records", hint='{"type": "record", …}'
        )
    return node


def parse_type(text: str, references: References = ()) -> Node:
    """Parses the schema of any type; it may name the types of the references. Raises InvalidOption."""
    parser = _Parser()
    try:
        for _, other in references:
            parser.node(json.loads(other), "")
        return parser.node(json.loads(text), "")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidOption(f"not a schema of Avro: {error}") from None


class _Parser:
    """Parses one schema, and stores its named types."""

    def __init__(self) -> None:
        self._named: dict[str, Node | None] = {}

    def node(self, data: Any, space: str) -> Node:
        if isinstance(data, str):
            return self._by_name(data, space)
        if isinstance(data, list):
            return _union(tuple(self.node(d, space) for d in data))
        kind = data["type"]
        if isinstance(kind, dict | list):
            return self.node(kind, space)
        logical = data.get("logicalType")
        if kind == "array":
            item = self.node(data["items"], space)
            return Node("array", pa.list_(pa.field("element", item.type)), (item,))
        if kind == "map":
            item = self.node(data["values"], space)
            return Node("map", pa.map_(pa.string(), item.type), (item,))
        if kind in ("record", "error", "enum", "fixed"):
            return self._new(kind, data, space, logical)
        return _logical(self._by_name(kind, space), logical, data)

    def _by_name(self, name: str, space: str) -> Node:
        if name in _PLAIN:
            return Node(name, _PLAIN[name])
        for full in (_full(name, space), name):
            if full in self._named:
                known = self._named[full]
                if known is None:
                    raise ValueError(f'the type "{name}" contains itself, which no column can hold')
                return known
        raise ValueError(f'there is no type "{name}"')

    def _new(self, kind: str, data: Mapping[str, Any], space: str, logical: str | None) -> Node:
        space = data.get("namespace", space)
        full = _full(data["name"], space)
        space = full.rpartition(".")[0]
        if kind == "enum":
            made = Node("enum", pa.string(), names=tuple(data["symbols"]))
        elif kind == "fixed":
            made = _logical(Node("fixed", pa.binary(), size=int(data["size"])), logical, data)
        else:
            self._named[full] = None
            fields = {f["name"]: self.node(f["type"], space) for f in data["fields"]}
            struct = pa.struct([pa.field(name, inner.type) for name, inner in fields.items()])
            made = Node("record", struct, tuple(fields.values()), tuple(fields))
        self._named[full] = made
        return made


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _union(branches: tuple[Node, ...]) -> Node:
    real = [b for b in branches if b.kind != "null"]
    if not real:
        return Node("null", pa.null())
    if len(real) == 1:
        return Node("union", real[0].type, branches)
    kinds = {b.kind for b in real}
    for numbers in _NUMBERS:
        if kinds <= numbers and all(b.type == _PLAIN[b.kind] for b in real):
            return Node("union", _PLAIN["long" if "long" in numbers else "double"], branches)
    members = [pa.field(f"member{at}", b.type) for at, b in enumerate(real)]
    return Node("union", pa.struct(members), branches)


def _logical(node: Node, logical: str | None, data: Mapping[str, Any]) -> Node:
    """Returns the node with its logical type; one that does not fit is left out, as Avro requires."""
    if logical == "decimal" and node.kind in ("bytes", "fixed"):
        precision, scale = int(data["precision"]), int(data.get("scale", 0))
        if not 0 < precision <= 38 or not 0 <= scale <= precision:
            raise ValueError(f"a decimal of {precision} digits, {scale} after the point, has no column")
        return Node("decimal", pa.decimal128(precision, scale), size=node.size)
    if logical == "date" and node.kind == "int":
        return Node("date", pa.date32())
    if logical == "uuid" and node.kind == "string":
        return node
    local = logical is not None and logical.startswith("local-timestamp-")
    unit = UNITS.get(str(logical).removeprefix("local-").removeprefix("timestamp-"))
    if node.kind == "long" and unit is not None:
        return Node("timestamp", TIMESTAMP_NTZ if local else TIMESTAMP, unit=unit)
    return node


def to_avro(columns: Schema, name: str) -> str:
    """Returns the schema of a record with these columns, all of them nullable."""
    makers = _Names()
    fields = [{"name": c.name, "type": ["null", makers.of(c.type, c.name)], "default": None} for c in columns]
    return json.dumps({"type": "record", "name": _word(name), "fields": fields})


def key_to_avro(dtype: pa.DataType, name: str) -> str:
    """Returns the schema of a key: a record whose fields are nullable for a struct, else the type of the value."""
    if pa.types.is_struct(dtype):
        return to_avro(Schema(tuple(Column(f.name, f.type) for f in dtype)), name)
    return json.dumps(_Names().of(dtype, name))


class _Names:
    """Chooses a unique name for each record of a schema."""

    def __init__(self) -> None:
        self._taken = 0

    def of(self, dtype: Any, name: str) -> Any:
        t = pa.types
        for kind, plain in _PLAIN.items():
            if dtype == plain:
                return kind
        if t.is_int8(dtype) or t.is_int16(dtype):
            return "int"
        if t.is_decimal128(dtype):
            return {
                "type": "bytes", "logicalType": "decimal", "precision": dtype.precision, "scale": dtype.scale
            }  # fmt: skip
        if t.is_date(dtype):
            return {"type": "int", "logicalType": "date"}
        if t.is_timestamp(dtype):
            local = "" if dtype.tz else "local-"
            return {"type": "long", "logicalType": f"{local}timestamp-micros"}
        if t.is_list(dtype):
            return {"type": "array", "items": ["null", self.of(dtype.value_type, name)]}
        if t.is_map(dtype) and t.is_string(dtype.key_type):
            return {"type": "map", "values": ["null", self.of(dtype.item_type, name)]}
        if t.is_struct(dtype):
            self._taken += 1
            record = f"{_word(name)}_{self._taken}"
            fields = [
                {"name": f.name, "type": ["null", self.of(f.type, f.name)], "default": None} for f in dtype
            ]
            return {"type": "record", "name": record, "fields": fields}
        raise InvalidOption(f'column "{name}" of type {type_name(dtype)} cannot be written as Avro')


def _word(name: str) -> str:
    """Returns a name as Avro allows it."""
    word = "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
    return word if word and not word[0].isdigit() else f"_{word}"
