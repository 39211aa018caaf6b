"""Declares the routes: what each is for, who may use it, what it takes. The server, the OpenAPI description and the
reference in docs are built from this one list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from millpond.http import (
    changes,
    graph,
    health,
    monitoring,
    queries,
    rows,
    statements,
    streams,
    tables,
)
from millpond.http.openapi import description
from millpond.http.responses import ARROW, EVENTS, JSON, LINES, MERMAID, SVG, TEXT, as_json
from millpond.http.route import Param, Route
from millpond.http.settings import Role
from millpond.sql.statements import EXPLAIN_FORMATS

if TYPE_CHECKING:
    from millpond.http.service import Service


async def _openapi(service: Service, request: Request) -> Response:
    return as_json(description(ROUTES))


_TEXT = {"type": "string"}
_ROW = {"type": "object", "additionalProperties": True}
_COLUMNS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": _TEXT, "type": _TEXT},
        "required": ["name", "type"],
    },
}
_ROWS = {
    "type": "object",
    "properties": {
        "columns": _COLUMNS,
        "rows": {"type": "array", "items": _ROW},
        "count": {"type": "integer"},
        "next": {"type": ["string", "null"]},
    },
}
_OBJECT = {"type": "object"}
_SQL = {
    "type": "object",
    "properties": {
        "sql": {"type": "string", "description": "One or several statements; the answer is the last one's."},
        "params": {
            "description": "Values for ? (an array) or :name (an object).",
            "oneOf": [{"type": "array", "items": {}}, {"type": "object"}, {"type": "null"}],
        },
    },
    "required": ["sql"],
    "additionalProperties": False,
}
_EXPLAIN = {
    "type": "object",
    "properties": {"sql": {"type": "string"}},
    "required": ["sql"],
    "additionalProperties": False,
}
_PLAN = {
    "type": "object",
    "properties": {
        "statement": _TEXT,
        "plan": {"type": "array", "items": _TEXT},
        "columns": _COLUMNS,
        "nodes": {"type": "array", "items": _OBJECT},
        "edges": {"type": "array", "items": _OBJECT},
    },
    "required": ["statement", "plan", "columns", "nodes", "edges"],
}

TABLE = Param("table", "path", "The name of a table.", _TEXT, required=True)
STREAM = Param("stream", "path", "The name of an embedded stream.", _TEXT, required=True)
QUERY = Param("query", "path", "The name of a running query.", _TEXT, required=True)
KEY = Param(
    "key",
    "path",
    "The primary key; of several columns its parts in their order, with commas between them (a comma within a part is "
    "%2C).",
    _TEXT,
    required=True,
)
FILTER = Param("where", "query", "A condition, as after WHERE.", _TEXT)

ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/tables/{table}/rows/{key}",
        Role.READ,
        "The row with a key.",
        rows.one_row,
        (TABLE, KEY),
        answer=_ROW,
        media=(JSON, ARROW),
        errors=(400, 404, 409),
    ),
    Route(
        "GET",
        "/tables/{table}/rows",
        Role.READ,
        (
            "A page of rows, in the order of the key. Pass `next` (also in the header X-Next) as "
            "`after` to get the next page."
        ),
        rows.many_rows,
        (
            TABLE,
            FILTER,
            Param(
                "limit", "query", "Rows of the page.", {"type": "integer", "minimum": 1, "maximum": 100_000}
            ),
            Param(
                "after", "query", "The key after which the page begins: `next` of the previous page.", _TEXT
            ),
        ),
        answer=_ROWS,
        media=(JSON, LINES, ARROW),
        errors=(400, 404, 422),
    ),
    Route(
        "POST",
        "/sql",
        Role.READ,
        "Runs statements. Which ones depends on the role.",
        statements.run_sql,
        body=_SQL,
        answer=_ROWS,
        media=(JSON, LINES, ARROW),
        errors=(400, 403, 409, 413, 422, 502, 504, 507),
    ),
    Route(
        "POST",
        "/explain",
        Role.READ,
        (
            "How a statement would run: as text, as JSON with a graph of what it reads and writes, "
            "or the graph as a picture. `format`, or Accept, chooses."
        ),
        statements.explain,
        (Param("format", "query", "The form of the answer.", {"enum": list(EXPLAIN_FORMATS)}),),
        body=_EXPLAIN,
        answer=_PLAN,
        media=(JSON, TEXT, MERMAID, SVG),
        errors=(400, 403, 413, 422, 502),
    ),
    Route("GET", "/tables", Role.READ, "All tables and views.", tables.list_tables, answer=_OBJECT),
    Route(
        "GET",
        "/tables/{table}",
        Role.READ,
        "A table: columns, key, rows, statistics, health.",
        tables.one_table,
        (TABLE,),
        answer=_OBJECT,
        errors=(404,),
    ),
    Route(
        "GET",
        "/tables/{table}/changes",
        Role.READ,
        (
            "The changes of a table as they are committed: one event for each commit, resumed with "
            "Last-Event-ID."
        ),
        changes.changes,
        (
            TABLE,
            Param("key", "query", "Only the row with this key.", _TEXT),
            FILTER,
            Param("conflate", "query", "Combines the changes of this time into one event: 1s, 500ms.", _TEXT),
            Param(
                "rows",
                "query",
                "true: the first event contains the current rows.",
                {"enum": ["true", "false"]},
            ),
            Param("Last-Event-ID", "header", "The id of the last event that the client has received.", _TEXT),
        ),
        media=(EVENTS,),
        errors=(400, 404, 409, 413, 422, 429),
    ),
    Route("GET", "/streams", Role.READ, "All streams.", streams.list_streams, answer=_OBJECT),
    Route(
        "POST",
        "/streams/{stream}",
        Role.WRITE,
        (
            "Sends rows to an embedded stream: a JSON object, an array of objects, or JSON lines. "
            "The response is sent when they are durable."
        ),
        streams.send_rows,
        (
            STREAM,
            Param(
                "unknown",
                "query",
                "What happens to fields that the stream does not have.",
                {"type": "string", "enum": ["error", "ignore"]},
            ),
            Param(
                "Idempotency-Key",
                "header",
                "The same key again, within a day, gets the same answer, and no second rows.",
                {"type": "string", "minLength": 1, "maxLength": 255},
            ),
        ),
        body={"oneOf": [_ROW, {"type": "array", "items": _ROW}]},
        body_media=(JSON, LINES),
        answer={"type": "object", "properties": {"rows": {"type": "integer"}}, "required": ["rows"]},
        errors=(400, 404, 408, 413, 422),
    ),
    Route(
        "GET",
        "/queries",
        Role.READ,
        "All running queries, as SHOW QUERIES.",
        queries.list_queries,
        answer=_OBJECT,
    ),
    Route(
        "POST",
        "/queries/{query}/{action}",
        Role.ADMIN,
        "Pauses, resumes, stops or starts a query.",
        queries.control,
        (QUERY, Param("action", "path", "What to do.", {"enum": list(queries.ACTIONS)}, required=True)),
        answer=_OBJECT,
        errors=(404,),
    ),
    Route(
        "GET",
        "/graph",
        Role.READ,
        (
            "Sources, streams, queries, tables and sinks as nodes with their states, and the flow "
            "between them as edges with rows per second."
        ),
        graph.graph,
        answer=_OBJECT,
    ),
    Route(
        "GET",
        "/stats",
        Role.READ,
        (
            "Samples of the last ten minutes: rows per second, batch times, lag, memory, errors, by "
            "query and in total."
        ),
        monitoring.stats,
        (Param("after", "query", "Only samples after this time: `at` of the last one.", {"type": "number"}),),
        answer=_OBJECT,
    ),
    Route(
        "GET",
        "/metrics",
        Role.READ,
        "Metrics for Prometheus.",
        monitoring.metrics,
        media=(TEXT,),
    ),
    Route("GET", "/health", Role.NONE, "Whether the process is alive.", health.health, answer=_OBJECT),
    Route(
        "GET",
        "/ready",
        Role.NONE,
        "Whether every table is loaded and every query runs; what is loading, and what is wrong.",
        health.ready,
        answer=_OBJECT,
        errors=(503,),
    ),
    Route("GET", "/openapi.json", Role.NONE, "This description.", _openapi, answer=_OBJECT),
)
