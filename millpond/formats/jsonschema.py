"""Converts a JSON Schema to the columns of an object, and columns to a JSON Schema.

What has no type in Millpond, such as a choice of several types, is STRING: it can contain the text of any JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urljoin

import pyarrow as pa

from millpond.errors import InvalidOption
from millpond.types import NUMBER, TIMESTAMP, Column, Schema

_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": NUMBER,
    "boolean": pa.bool_(),
}
_FORMATS: Mapping[tuple[str, str], pa.DataType] = {
    ("string", "date-time"): TIMESTAMP,
    ("string", "date"): pa.date32(),
    ("number", "double"): pa.float64(),
    ("number", "float"): pa.float32(),
}


def columns_of(text: str, references: Sequence[tuple[str, str]] = ()) -> Schema:
    """Returns the columns of objects of a schema; ``$ref`` finds what is in it and in the references, by their names.
    Raises InvalidOption.
    """
    try:
        documents = {name: json.loads(other) for name, other in references}
        found = _Types(documents).of(json.loads(text))
    except ValueError as error:
        raise InvalidOption(f"not a JSON Schema: {error}") from None
    if not pa.types.is_struct(found):
        raise InvalidOption("the JSON Schema has no properties, so it declares no columns")
    return Schema(tuple(Column(f.name, f.type) for f in found))


class _Types:
    """Finds the types of the parts of a schema. ``documents`` are those that it refers to, by name."""

    def __init__(self, documents: Mapping[str, Any]):
        self._documents = documents
        self._within: list[tuple[str, str]] = []

    def of(self, document: Any, name: str = "") -> pa.DataType:
        return self._type(document, document, name)

    def _type(self, data: Any, document: Any, name: str) -> pa.DataType:
        """Returns the type of a part of a document."""
        if not isinstance(data, dict):
            return pa.string()
        if isinstance(data.get("$ref"), str):
            return self._referred(data["$ref"], document, name)
        for several in ("oneOf", "anyOf"):
            real = [d for d in data.get(several, ()) if d != {"type": "null"}]
            if len(real) == 1:
                return self._type(real[0], document, name)
        kind = data.get("type", "object" if "properties" in data else None)
        if isinstance(kind, list):
            real = [k for k in kind if k != "null"]
            kind = real[0] if len(real) == 1 else None
        if kind == "object" and data.get("properties"):
            inner = {field: self._type(part, document, name) for field, part in data["properties"].items()}
            return pa.struct([pa.field(field, dtype) for field, dtype in inner.items()])
        if kind == "object" and isinstance(data.get("additionalProperties"), dict):
            return pa.map_(pa.string(), self._type(data["additionalProperties"], document, name))
        if kind == "array" and isinstance(data.get("items"), dict):
            return pa.list_(pa.field("element", self._type(data["items"], document, name)))
        return _FORMATS.get((kind or "", data.get("format", "")), _TYPES.get(kind or "", pa.string()))

    def _referred(self, reference: str, document: Any, name: str) -> pa.DataType:
        """Returns the type of what is referred to; STRING if it is not there, or contains itself."""
        where, _, pointer = reference.partition("#")
        if where:
            base = str(document.get("$id", "")) if isinstance(document, dict) else ""
            name = next((n for n in (where, urljoin(base, where)) if n in self._documents), "")
            if not name:
                return pa.string()
            document = self._documents[name]
        if (name, pointer) in self._within:
            return pa.string()
        part = document
        for key in pointer.split("/")[1:]:
            key = unquote(key).replace("~1", "/").replace("~0", "~")
            part = part.get(key) if isinstance(part, dict) else None
        self._within.append((name, pointer))
        try:
            return self._type(part, document, name)
        finally:
            self._within.pop()


def to_jsonschema(columns: Schema, name: str) -> str:
    """Returns the schema of objects with these columns, as they are written: each may be null."""
    properties = {c.name: _schema(c.type) for c in columns}
    return json.dumps({"title": name, "type": "object", "properties": properties})


def _schema(dtype: pa.DataType | None) -> dict[str, Any]:
    t = pa.types
    if t.is_struct(dtype):
        assert dtype is not None
        return {"type": ["object", "null"], "properties": {f.name: _schema(f.type) for f in dtype}}
    if t.is_map(dtype):
        assert dtype is not None
        return {"type": ["object", "null"], "additionalProperties": _schema(dtype.item_type)}
    if t.is_list(dtype):
        assert dtype is not None
        return {"type": ["array", "null"], "items": _schema(dtype.value_type)}
    if t.is_integer(dtype):
        return {"type": ["integer", "null"]}
    if t.is_floating(dtype):
        return {"type": ["number", "null"], "format": "float" if dtype == pa.float32() else "double"}
    if t.is_decimal(dtype):
        return {"type": ["number", "null"]}
    if t.is_boolean(dtype):
        return {"type": ["boolean", "null"]}
    form = "date-time" if t.is_timestamp(dtype) else "date" if t.is_date(dtype) else None
    return {"type": ["string", "null"]} | ({"format": form} if form else {})
