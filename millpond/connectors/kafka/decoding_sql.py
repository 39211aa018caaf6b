"""Writes the SQL with which Spark alone decodes the messages of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millpond.connectors.source import DELETED, SEQ
from millpond.errors import NotSupported
from millpond.formats.messages.base import find_messages, message_formats
from millpond.types import Column, Schema, quote

_ANY = Schema((Column("value", pa.string()),))


def decoding_sql(view: str, columns: Schema, values: Mapping[str, Any], *, keys_as_they_are: bool) -> str:
    """Returns the SELECT over what Spark has read. A message that cannot be decoded stops the query."""
    kind = find_messages(values["format"])
    value = None if values["schema.registry.url"] else kind.decoding_sql(columns)
    if value is None:
        able = ", ".join(m.name for m in message_formats() if m.decoding_sql(_ANY) is not None)
        raise NotSupported(
            f"the format {kind.name} cannot be decoded by Spark alone", hint=f"formats that can: {able}"
        )
    names = [f"__value.{quote(c.name)} AS {quote(c.name)}" for c in columns]
    if not keys_as_they_are:
        raise NotSupported(
            f"keys in {values['key.format']} cannot be decoded by Spark alone",
            hint="'key.format' = 'text' or 'raw'",
        )
    key = "CAST(key AS STRING)" if values["key.format"] == "text" else "key"
    hidden = (
        f"{key} AS _key", "partition AS _partition", "offset AS _offset", "timestamp AS _timestamp",
        "headers AS _headers", f"value IS NULL AS {DELETED}", f"offset AS {quote(SEQ)}",
    )  # fmt: skip
    return f"SELECT {', '.join((*names, *hidden))} FROM (SELECT {value} AS __value, * FROM {view})"
