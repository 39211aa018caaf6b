"""Writes values as texts that databases read, without loss."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.databases.nested_values import from_json, to_json
from millpond.types import TIMESTAMP_NTZ, Column


def to_texts(values: pa.Array | pa.ChunkedArray, dtype: pa.DataType) -> pa.Array:
    """Returns the values as texts: equal values, as SQL compares them, have the same text."""
    t = pa.types
    if isinstance(values, pa.ChunkedArray):
        parts = [to_texts(chunk, dtype) for chunk in values.chunks]
        return pa.concat_arrays(parts) if parts else pa.array([], pa.string())
    if t.is_nested(dtype):
        return pa.array(to_json(values), pa.string())
    if t.is_binary(dtype):
        return pa.array([None if v is None else "\\x" + v.hex() for v in values.to_pylist()], pa.string())
    if t.is_timestamp(dtype):
        return values.view(pa.int64()).view(TIMESTAMP_NTZ).cast(pa.string())
    if t.is_duration(dtype):
        number = values.view(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(number, "microseconds", " ")
    if t.is_floating(dtype):
        return pc.add(values, pa.scalar(0.0, dtype)).cast(pa.string())
    return values.cast(pa.string())


def from_texts(texts: list[str | None], dtype: pa.DataType) -> pa.Array:
    """Parses the texts of ``to_texts`` to values of the type."""
    t = pa.types
    if t.is_nested(dtype):
        return from_json(texts, dtype)
    if t.is_binary(dtype):
        return pa.array([None if v is None else bytes.fromhex(v[2:]) for v in texts], dtype)
    if t.is_duration(dtype):
        return pa.array([None if v is None else int(v.split()[0]) for v in texts], pa.int64()).view(dtype)
    found = pa.array(texts, pa.string())
    if t.is_timestamp(dtype):
        return found.cast(TIMESTAMP_NTZ).view(pa.int64()).view(dtype)
    return found.cast(dtype)


def equal_rows(rows: pa.Table, columns: Sequence[Column], keys: Sequence[pa.Array]) -> pa.Table:
    """Returns the rows whose columns equal one of the keys; NULL equals NULL, as keys have none unless it
    is allowed.
    """
    have = [to_texts(rows.column(c.name), c.type).to_pylist() for c in columns]
    want = set(
        zip(*(to_texts(k, c.type).to_pylist() for k, c in zip(keys, columns, strict=True)), strict=True)
    )
    return rows.filter(pa.array([row in want for row in zip(*have, strict=True)], pa.bool_()))
