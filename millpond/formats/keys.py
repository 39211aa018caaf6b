"""Decodes keys of messages as text, which identifies a row of a table.

A key in Avro or JSON is its value as text, or, for a record, a JSON object.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.errors import BadData
from millpond.formats.avroread import is_text, read_avro
from millpond.formats.avroschema import Node, References, parse_type
from millpond.formats.jsontext import to_json
from millpond.formats.wire import HEADER, UNFRAMED, Schemas, by_schema, stripped
from millpond.types import type_name


class Keys(NamedTuple):
    """Contains the text of each key that could be decoded; the indexes of the others, and the reasons."""

    texts: pa.Array
    bad: list[int]
    reasons: list[str]


class KeyTexts:
    """Decodes keys in ``name``, json or avro. With ``schemas`` they contain the numbers of their schemas; otherwise
    Avro keys have the schema ``text``. Picklable.
    """

    def __init__(self, name: str, schemas: Schemas | None, text: str | None):
        self._avro = name == "avro"
        self._schemas = schemas
        self._nodes: dict[int | None, Node] = {} if text is None else {None: _record(text)}

    def decode(self, keys: pa.Array) -> Keys:
        """Returns a text for each key, NULL if it is NULL or cannot be decoded."""
        here = np.flatnonzero(np.asarray(keys.is_valid()))
        given = keys.drop_null()
        alone: list[tuple[int | None, npt.NDArray[np.int64]]] = [(None, np.arange(len(given)))]
        bad, reasons = list[int](), list[str]()
        texts, places = [pa.nulls(0, pa.string())], [np.empty(0, np.int64)]
        for number, some in alone if self._schemas is None else by_schema(given):
            try:
                found = self._texts(number, given.take(pa.array(some)))
            except BadData as error:
                bad += here[some].tolist()
                reasons += [f"its key: {error.message}"] * len(some)
                continue
            bad += here[some[found.bad]].tolist()
            reasons += [f"its key: {reason}" for reason in found.reasons]
            texts.append(found.texts)
            places.append(here[np.delete(some, found.bad)])
        index = np.full(len(keys), -1)
        index[np.concatenate(places)] = np.arange(sum(map(len, places)))
        return Keys(pa.concat_arrays(texts).take(pa.array(index, mask=index < 0)), bad, reasons)

    def _texts(self, number: int | None, keys: pa.Array) -> Keys:
        """Returns the texts of keys of one schema. Raises BadData if it is not known."""
        if self._schemas is not None:
            if number is None:
                raise BadData(UNFRAMED)
            described = self._schemas.schema(number)
            if self._avro and number not in self._nodes:
                self._nodes[number] = _record(described.text, described.references)
        if not self._avro:
            return _utf8(keys if self._schemas is None else stripped(keys))
        node = self._nodes[number]
        rows, bad, reasons = read_avro(keys, node, 0 if self._schemas is None else HEADER)
        if node.names != ("",):
            return Keys(to_json(pa.Table.from_batches([rows])).cast(pa.string()), bad, reasons)
        if pa.types.is_nested(node.inner[0].type):
            raise BadData(f"a key that is a {type_name(node.inner[0].type)} is not supported")
        return Keys(rows.column(0).cast(pa.string()), bad, reasons)


def _record(text: str, references: References = ()) -> Node:
    """Returns a key that is not a record as a record with one field: its bytes are the same."""
    node = parse_type(text, references)
    return node if node.kind == "record" else Node("record", pa.struct([("", node.type)]), (node,), ("",))


def _utf8(keys: pa.Array) -> Keys:
    try:
        return Keys(keys.cast(pa.string()), [], [])
    except pa.ArrowInvalid:
        fine = np.array([is_text(k) for k in keys.to_pylist()])  # only if one of them is wrong
        bad = np.flatnonzero(~fine).tolist()
        return Keys(keys.filter(pa.array(fine)).cast(pa.string()), bad, ["not UTF-8"] * len(bad))
