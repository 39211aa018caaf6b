"""Stores error records: rows that a running statement could not process, with the reason, to be read and replayed."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    texts = [_dump(record) for record in to_rows(rows.drop_columns([SEQ]))]
    return _records(query, stream, rows[SEQ], reasons, texts, schema, at)


def message_records(query: str, stream: str, rejected: pa.Table, schema: Schema, at: datetime) -> pa.Table:
    """Returns one record for each message that could not be read, with its bytes in place of a row."""
    pairs = zip(rejected["value"].to_pylist(), rejected["key"].to_pylist(), strict=True)
    texts = [_dump(_message(value, key)) for value, key in pairs]
    return _records(query, stream, rejected["seq"], rejected["reason"], texts, schema, at)


def _records(
    query: str,
    stream: str,
    seqs: pa.ChunkedArray,
    reasons: pa.ChunkedArray,
    texts: list[str],
    schema: Schema,
    at: datetime,
) -> pa.Table:
    count = len(texts)
    values: dict[str, Any] = {
        "query": [without_shadow(query)] * count,
        "stream": [without_shadow(stream)] * count,
        "seq": seqs,
        "time": [at] * count,
        "reason": reasons,
        "row": texts,
    }
    types = {c.name: c.type for c in ERROR_COLUMNS}
    named = {c.name: _column(values[c.name.lower()], types[c.name.lower()]).cast(c.type) for c in schema}
    return pa.table(named)


def _message(value: bytes | None, key: bytes | None) -> dict[str, str | None]:
    """Returns a message that could not be read: what is text as text, other bytes in hexadecimal digits."""
    text = _text(value)
    message = {MESSAGE: text}
    if value is not None and text is None:
        message = {MESSAGE: f"0x{value.hex()}", "_bytes": value.hex()}
    if key is not None:
        text = _text(key)
        message |= {"_key": text} if text is not None else {"_key_bytes": key.hex()}
    return message


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def missed(gap: range) -> pa.Table:
    """Returns what tells of rows that were removed before they were read, in the form of a rejected message."""
    one = f"row {gap[0]} was removed before it was read"
    many = f"{len(gap):,} rows, {gap[0]} to {gap[-1]}, were removed before they were read"
    reason, none = one if len(gap) == 1 else many, pa.nulls(1, pa.binary())
    return pa.table({"seq": [gap[0]], "reason": [reason], "value": none, "key": none})


def of_messages(rows: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns which records are for messages, by their column ``row``."""
    return pc.starts_with(rows, pattern=f'{{"{MESSAGE}":')


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
    types = {c.name: c.type for c in schema if c.type is not None}
    rows = to_arrow(schema, [_fields(r, types) for r in loaded], what=what)
    return rows.append_column(SEQ, records["seq"].cast(pa.int64()))


def _dump(record: Mapping[str, Any]) -> str:
    return json.dumps(_plain(record), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Returns a value as JSON has it: bytes are hexadecimal digits, and the keys of maps are texts."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {_key(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _key(key: Any) -> str:
    plain = _plain(key)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _restored(value: Any, dtype: pa.DataType) -> Any:
    """Returns a value of a record with what ``_plain`` has made texts of: bytes, and the keys of maps. A value of
    another form, which somebody has written into the record, stays as it is.
    """
    if pa.types.is_binary(dtype) and isinstance(value, str):
        return _bytes(value)
    if pa.types.is_list(dtype) and isinstance(value, list):
        return [_restored(v, dtype.value_type) for v in value]
    if pa.types.is_struct(dtype) and isinstance(value, dict):
        return _fields(value, {f.name: f.type for f in dtype})
    if pa.types.is_map(dtype) and isinstance(value, dict):
        return {_restored_key(k, dtype.key_type): _restored(v, dtype.item_type) for k, v in value.items()}
    return value


def _fields(record: dict[str, Any], types: Mapping[str, pa.DataType]) -> dict[str, Any]:
    return {name: _restored(v, types[name]) if name in types else v for name, v in record.items()}


def _bytes(digits: str) -> bytes | str:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        return digits


def _restored_key(text: str, dtype: pa.DataType) -> Any:
    is_json = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_boolean(dtype)
    return json.loads(text) if is_json else _restored(text, dtype)
