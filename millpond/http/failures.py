"""Turns errors into responses: a status by the class, and a body that says what, where and what to do."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from millpond import errors
from millpond.errors import Error


class Refused(Error):
    """Refuses a request with a status."""

    code = "refused"

    def __init__(self, status: int, code: str, message: str, *, hint: str | None = None):
        super().__init__(message, hint=hint)
        self.status = status
        self.kind = code


_STATUS: dict[type[Error], int] = {
    errors.SqlError: 400,
    errors.UnknownName: 400,
    errors.AlreadyExists: 409,
    errors.InUse: 409,
    errors.NotSupported: 422,
    errors.DataError: 422,
    errors.DuplicateKey: 409,
    errors.TableFull: 507,
    errors.SourceError: 502,
    errors.FileMissing: 422,
    errors.StateError: 503,
    errors.Conflict: 409,
    errors.EngineError: 500,
    errors.NothingLeft: 503,
    errors.PipelineFailed: 409,
    errors.TimedOut: 504,
    errors.EngineLost: 503,
    errors.Closed: 503,
    errors.JavaMissing: 501,
    errors.PackageMissing: 501,
    errors.BadExtension: 501,
    errors.ConnectorMissing: 501,
}


def status_of(error: Error) -> int:
    """Returns the status of an error: that of the nearest base class that has one."""
    if isinstance(error, Refused):
        return error.status
    return next((_STATUS[c] for c in type(error).__mro__ if c in _STATUS), 500)


def body_of(error: Error, *, whole: bool = False) -> dict[str, Any]:
    """Returns ``{"error": {code, message, hint, line, column, …}}``; with ``whole`` also the source line, and how much
    of it is meant.
    """
    found: dict[str, Any] = {
        "code": error.kind if isinstance(error, Refused) else error.code,
        "message": error.message,
        "hint": error.hint,
        "line": error.line,
        "column": error.column,
    }
    if error.place is not None:
        found["caret"] = error.place.caret()
        if whole:
            found |= {"text": error.place.text, "length": error.place.length}
    for name in ("row", "field"):
        if getattr(error, name, None) is not None:
            found[name] = getattr(error, name)
    inner = [body_of(e, whole=whole)["error"] for e in getattr(error, "errors", ())]
    if inner:
        found["errors"] = inner
    return {"error": found}


def failed(error: Error, *, whole: bool = False) -> Response:
    status = status_of(error)
    headers = {"X-Content-Type-Options": "nosniff"}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status in (429, 503):
        headers["Retry-After"] = "1"
    body = json.dumps(body_of(error, whole=whole), ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, status, headers, "application/json")


def not_found(what: str, hint: str | None = None) -> Refused:
    return Refused(404, "not_found", what, hint=hint)


def bad_request(what: str, hint: str | None = None) -> Refused:
    return Refused(400, "bad_request", what, hint=hint)
