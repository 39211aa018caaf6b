"""Encodes rows as responses: JSON, JSON lines or an Arrow stream, as the client accepts, sent in pieces."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from millpond.formats.jsontext import row_to_json, written_alone
from millpond.formats.jsontext import to_json as rows_to_json
from millpond.http.failures import Refused
from millpond.query.result import LookupResult
from millpond.records.outgoing import distinct_names
from millpond.records.text import to_json
from millpond.types import type_name

JSON = "application/json"
LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "text/event-stream"
TEXT = "text/plain"
MERMAID = "text/vnd.mermaid"
SVG = "image/svg+xml"
_PIECE_ROWS = 10_000
_PIECE_BYTES = 4 * 1024 * 1024
"""Bytes of a piece of a response, as Arrow. One thread encodes it in some tens of milliseconds."""
_FEW_ROWS, _FEW_BYTES = 100, 16 * 1024
_plain = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
InThread = Callable[..., Awaitable[Any]]


def wanted(request: Request, *offered: str) -> str:
    """Returns the first media type of ``Accept`` that is offered; the first offered if the client accepts anything."""
    accept = request.headers.get("accept", "")
    listed = [part.split(";")[0].strip().lower() for part in accept.split(",")]
    for one in listed:
        if one in offered:
            return one
        kind = one.removesuffix("*") if one not in ("*/*", "") else ""
        if kind != one or not one:
            found = next((o for o in offered if o.startswith(kind)), None)
            if found is not None:
                return found
    raise Refused(
        406, "not_acceptable", f'none of "{accept}" can be given', hint=f"Accept: {', '.join(offered)}"
    )


def as_json(value: Any, status: int = 200) -> Response:
    return Response(encode(value), status, media_type=JSON)


def encode(value: Any) -> bytes:
    """Encodes a value as JSON. Decimals are numbers with all their digits: they never go through a float."""
    try:
        return _plain(value).encode()
    except (TypeError, ValueError):
        return to_json(value, micros=True).encode("utf-8", "replace")


def columns_of(schema: pa.Schema) -> list[dict[str, str]]:
    names = distinct_names(schema.names)
    return [{"name": n, "type": _type(f.type)} for n, f in zip(names, schema, strict=True)]


def _type(dtype: pa.DataType) -> str:
    try:
        return type_name(dtype)
    except TypeError:  # an interval, as DuckDB returns it
        return str(dtype)


def objects(rows: pa.Table) -> list[bytes]:
    """Returns each row as the text of a JSON object."""
    found: list[bytes] = rows_to_json(rows.rename_columns(distinct_names(rows.column_names))).to_pylist()
    return found


async def answer_rows(
    rows: pa.Table, media: str, in_thread: InThread, after: dict[str, Any] | None = None
) -> Response:
    """Returns a response with all rows. In JSON they are in the field ``rows`` of an object, before the fields of
    ``after``.
    """
    if media == ARROW:
        pieces = _arrow(rows)
    elif media == LINES:
        pieces = (b"\n".join(objects(p)) + b"\n" for p in _pieces(rows) if p.num_rows)
    else:
        pieces = _json(rows, after or {})
    if rows.num_rows <= _FEW_ROWS and _bytes(rows) <= _FEW_BYTES:
        return Response(b"".join(pieces), media_type=media)  # faster than a thread
    if rows.num_rows <= _piece_rows(rows):
        return Response(await in_thread(b"".join, pieces), media_type=media)
    return StreamingResponse(_sent(pieces, in_thread), media_type=media)


def answer_few(result: LookupResult, media: str) -> Response | None:
    """Returns the few rows of a lookup as ``answer_rows`` does, without building Arrow; None for others."""
    if media != JSON or len(result) > _FEW_ROWS:
        return None
    lead = _lead(result.schema)
    if lead is None:
        return None
    rows = b",".join([row_to_json(row, result.schema) for row in result.rows()])
    return Response(lead + rows + b"]}", media_type=JSON)


@lru_cache(maxsize=256)
def _lead(schema: pa.Schema) -> bytes | None:
    return _head(schema) if written_alone(schema) else None


def _head(schema: pa.Schema) -> bytes:
    return encode({"columns": columns_of(schema)})[:-1] + b',"rows":['


async def _sent(pieces: Iterator[bytes], in_thread: InThread) -> AsyncIterator[bytes]:
    while (piece := await in_thread(next, pieces, None)) is not None:
        yield piece


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    step = _piece_rows(rows)
    for first in range(0, rows.num_rows, step):
        yield rows.slice(first, step)


def _piece_rows(rows: pa.Table) -> int:
    fitting = _PIECE_BYTES * int(rows.num_rows) // max(1, _bytes(rows))
    return max(1, min(_PIECE_ROWS, fitting))


def _bytes(rows: pa.Table) -> int:
    """Estimates the bytes that are sent. Every row contains the names of the columns, and these may be long."""
    return int(rows.nbytes) + int(rows.num_rows) * sum(len(name) for name in rows.column_names)


def _json(rows: pa.Table, after: dict[str, Any]) -> Iterator[bytes]:
    lead = _head(rows.schema)
    for piece in _pieces(rows):
        yield lead + b",".join(objects(piece))
        lead = b","
    ending = b"," + encode(after)[1:] if after else b"}"
    yield (lead if not rows.num_rows else b"") + b"]" + ending


class Pieces:
    """Collects what is written until it is taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        found, self._parts = b"".join(self._parts), []
        return found


def _arrow(rows: pa.Table) -> Iterator[bytes]:
    out = Pieces()
    with pa.ipc.new_stream(pa.PythonFile(out, "w"), rows.schema) as writer:
        for batch in rows.to_batches(max_chunksize=_piece_rows(rows)):
            writer.write_batch(batch)
            yield out.take()
    yield out.take()
