"""Splits the path of a request: a slash that is written %2F belongs to a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send


class Segments:
    """Decodes each segment of the path by itself, before the routes are matched. What would look like the end of a
    segment stays encoded until ``names_of``.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and b"%" in scope["raw_path"]:
            scope["path"] = "/".join(map(_decoded, scope["raw_path"].split(b"/")))
        await self._app(scope, receive, send)


def _decoded(segment: bytes) -> str:
    text = unquote_to_bytes(segment).decode(errors="replace")
    return text.replace("%", "%25").replace("/", "%2F")


def names_of(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Returns the decoded parameters of a path."""
    return {name: value.replace("%2F", "/").replace("%25", "%") for name, value in parameters.items()}


def raw_segments(raw: bytes, most: int) -> list[str]:
    """Returns the segments of a path as they were sent, without the first, which is empty; the last of ``most`` is
    the rest."""
    return raw.decode("latin-1").split("/", most)[1:]
