"""Writes the SQL with which Spark alone decodes the messages of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.connectors.source import DELETED, SEQ
from millpond.errors import NotSupported
from millpond.types import Schema, quote, type_name


def decoding_sql(view: str, columns: Schema, values: Mapping[str, Any], *, keys_as_they_are: bool) -> str:
    """Returns the SELECT over what Spark has read. A message that cannot be decoded stops the query."""
    name = values["format"]
    if name == "json" and not values["schema.registry.url"]:
        fields = ", ".join(f"{quote(c.name)} {type_name(c.type)}" for c in columns)
        ddl = fields.replace("\\", "\\\\").replace("'", "\\'")
        value = f"from_json(CAST(value AS STRING), '{ddl}', map('mode', 'FAILFAST'))"
        names = [f"__value.{quote(c.name)} AS {quote(c.name)}" for c in columns]
    elif name in ("text", "raw"):
        value = "CAST(value AS STRING)" if name == "text" else "value"
        names = [f"__value AS {quote(columns.columns[0].name)}"]
    else:
        raise NotSupported(
            f"the format {name} cannot be decoded by Spark alone",
            hint="formats that can: json, text, raw",
        )
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
