"""Stores error records: rows that a running statement could not process, with the reason, to be read and replayed."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes
from millpond.connectors.source import SEQ
from millpond.records import to_arrow, to_rows
from millpond.sql.errortables import ERROR_COLUMNS
from millpond.sql.reserved_names import without_shadow
from millpond.types import Schema

MESSAGE = "_message"


def error_records(
    query: str, stream: str, rows: pa.Table, reasons: pa.ChunkedArray, schema: Schema, at: datetime
) -> pa.Table:
    """Returns one record for each row, with those of the columns that the table has."""
    seqs = rows[SEQ]
    texts = [_dump(record) for record in to_rows(rows.drop_columns([SEQ]))]
    count = rows.num_rows
    values: dict[str, Any] = {
        "query": [without_shadow(query)] * count,
        "stream": [stream] * count,
        "seq": seqs,
        "time": [at] * count,
        "reason": reasons,
        "row": texts,
    }
    types = {c.name: c.type for c in ERROR_COLUMNS}
    named = {c.name: _column(values[c.name.lower()], types[c.name.lower()]).cast(c.type) for c in schema}
    return pa.table(named)


def message_records(query: str, stream: str, rejected: pa.Table, schema: Schema, at: datetime) -> pa.Table:
    """Returns one record for each message that could not be read, with its text in place of a row."""
    rows = pa.table({MESSAGE: rejected["value"], SEQ: rejected["seq"]})
    return error_records(query, stream, rows, rejected["reason"], schema, at)


def missed(gap: range) -> pa.Table:
    """Returns what tells of rows that were removed before they were read, in the form of a rejected message."""
    one = f"row {gap[0]} was removed before it was read"
    many = f"{len(gap):,} rows, {gap[0]} to {gap[-1]}, were removed before they were read"
    reason = one if len(gap) == 1 else many
    return pa.table({"seq": [gap[0]], "reason": [reason], "value": pa.nulls(1, pa.string())})


def is_message(records: pa.Table) -> pa.ChunkedArray:
    """Returns which records are for messages."""
    return pc.starts_with(records["row"], pattern=f'{{"{MESSAGE}":')


def renewed(known: pa.Table, records: pa.Table) -> Changes:
    """Returns the changes that replace the known records, which have their row numbers, by these."""
    fresh = records.append_column(ROW, pa.nulls(records.num_rows, pa.int64()))
    is_gone = pa.array([True] * known.num_rows + [False] * fresh.num_rows, pa.bool_())
    return Changes(pa.concat_tables([known, fresh.select(known.column_names)]), is_gone)


def _column(values: Any, dtype: pa.DataType | None) -> Any:
    return values if isinstance(values, pa.ChunkedArray) else pa.array(values, dtype)


def rows_of(records: pa.Table, schema: Schema, what: str) -> pa.Table:
    """Returns the rows of the records, with ``_seq``, in stream order. Records have the columns ``seq`` and ``row``."""
    records = records.sort_by("seq")
    loaded = [json.loads(text) for text in records["row"].to_pylist()]
    rows = to_arrow(schema, [_restored(r, schema) for r in loaded], what=what)
    return rows.append_column(SEQ, records["seq"].cast(pa.int64()))


def _dump(record: dict[str, Any]) -> str:
    return json.dumps(record, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _restored(record: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Returns the record with its bytes decoded: it stores them as hexadecimal digits."""
    for column in schema:
        value = record.get(column.name)
        if value is not None and column.type is not None and pa.types.is_binary(column.type):
            record[column.name] = bytes.fromhex(value)
    return record
