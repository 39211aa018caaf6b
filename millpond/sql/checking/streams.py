"""Describes streams that the app itself stores."""

from __future__ import annotations

import pyarrow as pa

from millpond.errors import Error, TypeMismatch, UnknownName, did_you_mean
from millpond.sql import statements as st
from millpond.sql.catalog import Relation
from millpond.sql.options import limits_of, retention_of
from millpond.sql.windowing import has_window
from millpond.types import Schema, type_name


def stored_stream(s: st.CreateStream, schema: Schema) -> Relation:
    """Returns a stream that the app itself stores. A 'retention' next to windows is theirs."""
    owner = f'stream "{s.name}"'
    kept = None if s.query is not None and has_window(s.query) else retention_of(owner, s.settings)
    limits = limits_of(owner, s.settings)
    return Relation(
        s.name, "stream", schema, running=True, watermark=s.watermark, limits=limits, retention=kept
    )


def check_watermark(relation: Relation, s: st.CreateStream, errors: list[Error]) -> None:
    """Checks that the column of WATERMARK is a time of the stream."""
    if s.watermark is None:
        return
    column = relation.schema.find(s.watermark.column)
    if column is None:
        names = relation.schema.names
        errors.append(
            UnknownName(
                f'column "{s.watermark.column}" of WATERMARK is not in stream "{s.name}"',
                hint=did_you_mean(s.watermark.column, names, f"its columns: {', '.join(names)}"),
                place=s.place,
            )
        )
    elif column.type is not None and not pa.types.is_timestamp(column.type):
        errors.append(
            TypeMismatch(
                f'WATERMARK is for a TIMESTAMP, "{column.name}" is {type_name(column.type)}',
                place=s.place,
            )
        )
