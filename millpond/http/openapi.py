"""Builds the OpenAPI description from the declared routes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.http.responses import JSON
from millpond.http.route import Route
from millpond.http.settings import Role
from millpond.version import __version__

_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "hint": {"type": ["string", "null"]},
                "line": {"type": ["integer", "null"]},
                "column": {"type": ["integer", "null"]},
                "caret": {"type": "string"},
                "row": {"type": "integer"},
                "field": {"type": "string"},
                "errors": {"type": "array", "items": {"type": "object"}},
            },
            "required": ["code", "message", "hint", "line", "column"],
        }
    },
    "required": ["error"],
}
ALWAYS = (400, 401, 403, 406, 414, 421, 503, 504)
"""Statuses that any route may return."""
MEANINGS = {
    200: "The answer.",
    400: "The request is wrong; the body says where.",
    401: "A token is needed, or this one is not known.",
    403: "Not for this role, this site, or this URI.",
    404: "There is none of that name or key.",
    406: "None of the media types of Accept can be given.",
    408: "The body did not come in time.",
    409: "It does not go with what is there.",
    413: "The body is too large.",
    414: "The URL is too long.",
    415: "The body is compressed.",
    421: "The request is for another host.",
    422: "Understood, but it cannot be done; nothing was changed.",
    429: "Too many clients follow changes.",
    502: "A system outside failed.",
    503: "Not ready, or too busy.",
    504: "Not answered in time.",
    507: "A table is full.",
}


def description(routes: Iterable[Route]) -> dict[str, Any]:
    """Returns the description of the routes."""
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Millpond",
            "version": __version__,
            "description": "Streaming SQL with live tables.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    statuses = sorted({*ALWAYS, *route.errors})
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses: dict[str, Any] = {
        str(status): {"description": MEANINGS[status], "content": error} for status in statuses
    }
    schema = route.answer or {}
    responses["200"] = {
        "description": MEANINGS[200],
        "content": {media: {"schema": schema if media == JSON else {}} for media in route.media},
    }
    found: dict[str, Any] = {
        "summary": route.help,
        "operationId": _name(route),
        "parameters": [
            {
                "name": p.name,
                "in": p.where,
                "description": p.help,
                "required": p.required,
                "schema": p.schema,
            }
            for p in route.params
        ],
        "responses": responses,
    }
    if route.path == "/ready":  # the body says what it waits for
        responses["503"] = {"description": MEANINGS[503], "content": {JSON: {"schema": {"type": "object"}}}}
    if route.body is not None:
        content = {media: {"schema": route.body if media == JSON else {}} for media in route.body_media}
        found["requestBody"] = {"required": True, "content": content}
    if route.role is not Role.NONE:
        found["security"] = [{"token": []}]
        found["x-role"] = route.role.name.lower()
    return found


def _name(route: Route) -> str:
    words = [w for w in route.path.replace("{", "").replace("}", "").replace(".", "/").split("/") if w]
    return "_".join((route.method.lower(), *words))
