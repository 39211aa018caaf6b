"""Writes the keys of messages as text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.digits import all_written
from millpond.formats.jsontext import to_json
from millpond.types import whole


def key_texts(keys: pa.Table) -> pa.Array:
    """Returns the keys of messages: the value of a single column as text, several, or a NULL, as a JSON object."""
    objects = to_json(keys).cast(pa.string())
    if keys.num_columns > 1:
        return objects
    column = whole(keys.column(0))
    texts = all_written(column) if pa.types.is_decimal(column.type) else column.cast(pa.string())
    return pc.coalesce(texts, objects)
