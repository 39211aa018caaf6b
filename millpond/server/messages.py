"""What goes over the socket of a running app.

    request   one line of JSON: {"sql": "…", "params": […] or {…} or null}, and with "only_reads": true nothing is
              changed; BEGIN, COMMIT and ROLLBACK may be requests of their own
    answer    one line of JSON: {"count": n}, {"rows": true}, {"running": true} or {"error": {…}};
              behind "rows" and "running" an Arrow IPC stream, and behind that one more line: {} or {"error": {…}}

An error keeps its class, place and hint on the way.
"""

from __future__ import annotations

import json
from io import BufferedIOBase
from typing import Any

from millpond.errors import CheckFailed, Error, InvalidRecord, Place, SourceError
from millpond.formats.jsondepth import MAX_DEPTH, is_deeper

MAX_LINE = 64 * 1024 * 1024


def write_line(file: BufferedIOBase, message: dict[str, Any]) -> None:
    file.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
    file.flush()


def read_line(file: BufferedIOBase) -> dict[str, Any] | None:
    """The next message; None when the other side has gone."""
    line = file.readline(MAX_LINE)
    if not line.endswith(b"\n"):
        if len(line) < MAX_LINE:
            return None
        raise SourceError(
            f"the message is longer than {MAX_LINE >> 20} MB", hint="send it in several, or rows to a stream"
        )
    try:
        if is_deeper(line, MAX_DEPTH):
            raise SourceError(f"the message is nested deeper than {MAX_DEPTH} levels")
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise SourceError("the message is not JSON", hint='send {"sql": "…"} and a newline') from None
    if not isinstance(message, dict):
        raise SourceError("the message is not a JSON object", hint='send {"sql": "…"} and a newline')
    return message


def dump_error(error: Error) -> dict[str, Any]:
    place = error.place
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "line": error.line,
        "column": error.column,
        "length": place.length if place else None,
        "text": place.text if place else None,
        "row": getattr(error, "row", None),
        "field": getattr(error, "field", None),
        "errors": [dump_error(e) for e in getattr(error, "errors", ())],
    }


def load_error(data: dict[str, Any]) -> Error:
    if data.get("errors"):
        return CheckFailed([load_error(e) for e in data["errors"]])
    place = None
    if data.get("line") is not None:
        place = Place(data["line"], data["column"], data["length"], data["text"])
    kind = _classes().get(data["code"], Error)
    if kind is InvalidRecord:
        return InvalidRecord(
            data["message"], row=data.get("row"), field=data.get("field"), hint=data.get("hint"), place=place
        )
    if kind is CheckFailed:
        kind = Error
    return kind(data["message"], hint=data.get("hint"), place=place)


def _classes() -> dict[str, type[Error]]:
    found: dict[str, type[Error]] = {}
    todo: list[type[Error]] = [Error]
    while todo:
        kind = todo.pop()
        found[kind.code] = kind
        todo += kind.__subclasses__()
    return found
