"""Decodes columns of a message's key: a tombstone identifies with them the row that it deletes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.errors import BadData
from millpond.formats.messages.json import JsonMessages
from millpond.formats.text import Misfit, convert
from millpond.types import Column, Schema, type_name

NO_KEY = "a message without a value has no key: which row it ends is not known"


def key_columns(keys: pa.Array, columns: Schema) -> pa.RecordBatch:
    """Decodes keys to columns: a JSON object, by itself or as the ``payload`` next to a ``schema``, or, for a single
    column, its text. Raises BadData.
    """
    if keys.null_count:
        raise BadData(NO_KEY)
    try:
        texts = keys.cast(pa.string())
    except pa.ArrowInvalid:
        raise BadData("the key of a message without a value is not text") from None
    objects = np.asarray(pc.match_substring_regex(texts, r"^\s*\{"))
    if len(columns) > 1:
        if not objects.all():
            raise _not_an_object(texts, objects, columns)
        return _of_objects(texts, columns)
    column = columns.columns[0]
    plain, records = np.flatnonzero(~objects), np.flatnonzero(objects)
    found = [_of_texts(texts.take(pa.array(plain)), column)]
    if len(records):
        found.append(_of_objects(texts.take(pa.array(records)), columns).column(0))
    place = np.empty(len(texts), np.int64)
    place[np.concatenate([plain, records])] = np.arange(len(texts))
    array = pa.concat_arrays(found).take(pa.array(place))
    return pa.RecordBatch.from_arrays([array], schema=columns.arrow())


def _of_texts(texts: pa.Array, column: Column) -> pa.Array:
    assert column.type is not None
    try:
        return convert(texts, column.type, empty_is_null=False)
    except Misfit as error:
        raise BadData(
            f'the key "{error.value}" of a message without a value is not a {type_name(column.type)} "{column.name}"'
        ) from None


def _of_objects(texts: pa.Array, columns: Schema) -> pa.RecordBatch:
    inner = pa.struct([pa.field(c.name, c.type) for c in columns])
    both = Schema((*columns, Column("payload", inner))) if "payload" not in columns else columns
    decoded = JsonMessages(both, {}).decode(texts.cast(pa.binary()))
    if decoded.bad:
        raise BadData(f"the key of a message without a value: {decoded.reasons[0]}")
    arrays = decoded.rows.columns[: len(columns)]
    if both is not columns:
        wrapped = decoded.rows.column(len(columns))
        arrays = [
            pc.if_else(wrapped.is_valid(), i, a) for i, a in zip(wrapped.flatten(), arrays, strict=True)
        ]
    for array, column in zip(arrays, columns, strict=True):
        if array.null_count:
            key = texts[pc.index(array.is_null(), True).as_py()].as_py()
            raise BadData(f'the key {key} of a message without a value has no "{column.name}"')
    return pa.RecordBatch.from_arrays(arrays, schema=columns.arrow())


def _not_an_object(texts: pa.Array, objects: np.ndarray, columns: Schema) -> BadData:
    key = texts[int(np.flatnonzero(~objects)[0])].as_py()
    names = ", ".join(f'"{c.name}": …' for c in columns)
    return BadData(f'the key "{key}" of a message without a value is not an object {{{names}}}')
